"""Makes the pictures of the documentation: `python -m docs.figures [NAME ...]`, names as the files without .png.

The Python blocks of the tutorials save their own pictures; the others have recipes. Without names, all are made that
take a minute or so; the rest of the recipes, which take hours or need more than the package, are made when named.
Whatever the source, a picture is stored such that it stays small.
"""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from docs.figures.recipes import LONG, QUICK, ROOT, Recipe

HERE = Path(__file__).parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
SAVED = re.compile(r"\.savefig\(\"(\w+)\.png\"")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WIDTHS, MOST_BYTES = (1400, 1200, 1000, 800), 250_000  # pixels; bytes


def saved_by_pages() -> dict[str, Path]:
    """Return the pictures that blocks of pages save, and their pages."""
    return {name: page for page in PAGES for name in SAVED.findall(page.read_text(encoding="utf-8"))}


def store(name: str, picture: bytes) -> Path:
    """Write a picture, at most 1400 pixels wide; where that is more than 250 kB, with 256 colours, or smaller."""
    from PIL import Image

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for width in WIDTHS:
        size = (width, round(image.height * width / image.width))
        shown = image if image.width <= width else image.resize(size, Image.Resampling.LANCZOS)
        for small in (_png(shown), _png(_few_colours(shown))):
            if len(small) <= MOST_BYTES:
                path = HERE / f"{name}.png"
                path.write_bytes(small)
                return path
    raise ValueError(f"{name}: more than {MOST_BYTES:,} bytes, even {WIDTHS[-1]} pixels wide. Draw less in it.")


def _few_colours(image: Any) -> Any:
    """Return an image in 256 colours that reach to the ends of its scales, mixed where one is missing."""
    from PIL import Image

    palette = image.quantize(256, method=Image.Quantize.MAXCOVERAGE)
    colours = np.reshape(palette.getpalette(), (-1, 3))
    colours[colours.min(1) >= 248] = 255  # the paper stays white
    palette.putpalette(colours.ravel().tolist())
    return image.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()


def run_page(page: Path, folder: Path) -> None:
    """Run the Python blocks of a page, one after the other, in a folder."""
    script = folder / "page.py"
    script.write_text("\n".join(BLOCK.findall(page.read_text(encoding="utf-8"))), encoding="utf-8")
    _run([sys.executable, str(script)], folder)


def follow(recipe: Recipe, folder: Path) -> bytes:
    """Return the picture that a recipe leaves."""
    for name, text in recipe.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    for command in recipe.commands:
        program, *words = shlex.split(command.replace("{folder}", str(folder)))
        ours = {"python": [sys.executable], "shardfit": [sys.executable, "-m", "shardfit"]}
        _run([*ours.get(program, [program]), *words], folder)
    return (folder / recipe.file).read_bytes()


def _run(words: list[str], folder: Path) -> None:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(words, cwd=folder, env={**os.environ, "PYTHONPATH": path})
    if done.returncode > 1:  # 1: an answer that is doubtful, such as that of a short fit
        raise RuntimeError(f"{shlex.join(words)} ended with exit code {done.returncode}.")


def main() -> None:
    """Make the pictures that are named, or all that are quick."""
    pages, recipes = saved_by_pages(), {**QUICK, **LONG}
    later = "; ".join(f"{name} ({recipe.needs})" for name, recipe in LONG.items())
    parser = argparse.ArgumentParser(prog="python -m docs.figures", epilog=f"only when named: {later}")
    parser.add_argument("names", nargs="*", metavar="NAME", help="pictures to make (all that are quick)")
    wanted = parser.parse_args().names or [*pages, *QUICK]
    if unknown := [name for name in wanted if name not in {**pages, **recipes}]:
        parser.error(f"no such picture: {', '.join(unknown)}. There are {', '.join([*pages, *recipes])}.")
    for page in dict.fromkeys(pages[name] for name in wanted if name in pages):
        with tempfile.TemporaryDirectory() as folder:
            run_page(page, Path(folder))
            for name in (name for name, of in pages.items() if of == page):
                print(store(name, (Path(folder) / f"{name}.png").read_bytes()))
    for name in (name for name in wanted if name in recipes):
        with tempfile.TemporaryDirectory() as folder:
            print(store(name, follow(recipes[name], Path(folder))))


if __name__ == "__main__":
    main()
