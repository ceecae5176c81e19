"""What a study adds to the report of its run: title, sections, figures of its science; kept so that it can be rebuilt.

`report.json` in the run directory holds it, pictures by file name. Files may come from a stranger: names are plain,
pictures are PNG, and texts are escaped where they are shown.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardfit.io.files import write_atomic
from shardfit.report.blocks import Block, PngBlock, Section, Table, Text
from shardfit.report.style import png_bytes

EXTRA = "report.json"  # what a study left for the report


@dataclass(frozen=True, eq=False)
class Study:
    """A title and sections for the report of a run directory, before those of its result.

    sections: of `Text`, `Table` and pictures from `save_figure`; one with the title Parameters takes the place of the
    result's own. science: the installed one whose `report` module draws figures of the run; settings: plain values that
    it needs for that.

    Example: `report_run(out, Study("Decay", sections=[Section("Data", [save_figure(figure, out, "data")])]))`.
    """

    title: str = ""
    subtitle: str = ""
    sections: Sequence[Section] = ()
    science: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def shows(self, name: str) -> bool:
        """Return whether a picture is among the blocks."""
        return any(isinstance(b, PngBlock) and b.name == name for section in self.sections for b in section.blocks)

    def save(self, run_dir: str | Path) -> None:
        """Keep it in a run directory."""
        sections = [{"title": one.title, "blocks": [_plain(block) for block in one.blocks]} for one in self.sections]
        content = {"title": self.title, "subtitle": self.subtitle, "sections": sections}
        if self.science is not None:
            content |= {"science": self.science, "settings": dict(self.settings)}
        text = json.dumps(content, indent=1, ensure_ascii=False)
        write_atomic(Path(run_dir) / EXTRA, lambda file: file.write(text.encode()))

    @classmethod
    def read(cls, run_dir: str | Path) -> "Study":
        """Return what was kept in a run directory; raise ValueError if it was damaged."""
        folder = Path(run_dir)
        if not (folder / EXTRA).is_file():
            return cls()
        try:
            extra = json.loads((folder / EXTRA).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{folder / EXTRA} is not valid JSON ({error}). Delete it or run again.") from None
        try:
            sections = [
                Section(str(one.get("title", "")), [_block(block, folder) for block in one.get("blocks", [])])
                for one in list(extra.get("sections", []))
            ]
            science, settings = extra.get("science"), dict(extra.get("settings", {}))
        except (AttributeError, TypeError, LookupError) as error:
            raise ValueError(f"{folder / EXTRA}: a section is not built as expected ({error}). Delete it.") from None
        title, subtitle = str(extra.get("title", "")), str(extra.get("subtitle", ""))
        return cls(title, subtitle, sections, None if science is None else str(science), settings)


def save_figure(figure: Any, run_dir: str | Path, name: str, caption: str = "") -> PngBlock:
    """Write figures/<name>.png into a run directory and return the picture as a block of its report."""
    folder = Path(run_dir) / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    png = png_bytes(figure)
    write_atomic(folder / f"{name}.png", lambda file: file.write(png))
    return PngBlock(png, caption, name)


def kept_picture(run_dir: str | Path, name: str, caption: str = "") -> PngBlock:
    """Return a picture that a run directory holds, among its figures or beside its other files."""
    folder = Path(run_dir)
    places = [folder / "figures" / f"{name}.png", folder / f"{name}.png"]
    if Path(name).name != name or name.startswith(".") or any(path.is_symlink() for path in places):
        raise ValueError(f"{folder / EXTRA}: picture {name!r} is not a plain name of a file in figures/.")
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"{folder / EXTRA} shows figures/{name}.png, which is missing. Run the study again.")
    return PngBlock(path.read_bytes(), caption, name)


def _plain(block: Block) -> dict[str, Any]:
    if isinstance(block, PngBlock) and block.name:
        return {"picture": block.name, "caption": block.caption}
    if isinstance(block, Table):
        rows = [[str(cell) for cell in row] for row in block.rows]
        return {"header": list(block.header), "rows": rows, "caption": block.caption}
    if isinstance(block, Text):
        return {"text": block.text}
    raise TypeError(f"a study keeps texts, tables and pictures from save_figure, not {type(block).__name__}.")


def _block(block: Mapping[str, Any], folder: Path) -> Block:
    if "picture" in block:
        return kept_picture(folder, str(block["picture"]), str(block.get("caption", "")))
    if "rows" in block:
        rows = [[str(cell) for cell in row] for row in block["rows"]]
        return Table([str(h) for h in block["header"]], rows, str(block.get("caption", "")))
    if "text" in block:
        return Text(str(block["text"]))
    raise ValueError(
        f"{folder / EXTRA}: a block has none of 'text', 'rows', 'picture' but {sorted(block)}. Correct or delete it."
    )
