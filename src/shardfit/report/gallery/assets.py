"""The page's own files. Its scripts are joined into one: quick to fetch, and able to live inside a page."""

import re
from importlib.resources import files

PAGE, STYLE, SCRIPT = "gallery.html", "gallery.css", "gallery.js"
# in the order in which they need each other
SCRIPTS = (
    "dom.js",
    "numbers.js",
    "scale.js",
    "points.js",
    "source.js",
    "state.js",
    "header.js",
    "canvas.js",
    "toolbar.js",
    "filters.js",
    "scatter.js",
    "parallel.js",
    "tiles.js",
    "wall.js",
    "table.js",
    "failures.js",
    "stack.js",
    "closeup.js",
    "main.js",
)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def asset(name: str) -> str:
    """Return the text of one of the page's files."""
    return files("shardfit.report.gallery").joinpath("page", name).read_text(encoding="utf-8")


def joined_scripts() -> str:
    """Return all scripts as one: each becomes a function that returns its exports, each import takes from those.

    So the files keep to `import { a, b } from "./x.js";` in one line and `export` before a declaration.
    """
    return "const modules = {};\n" + "\n".join(map(_as_function, SCRIPTS))


def _as_function(name: str) -> str:
    text = asset(name)
    exports = re.findall(r"^export (?:const|class|function) (\w+)", text, flags=re.MULTILINE)
    text = re.sub(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', r'const \1 = modules["\2"];', text, flags=re.MULTILINE)
    text = re.sub(r"^export ", "", text, flags=re.MULTILINE)
    return f'modules["{name}"] = (() => {{\n{text}\nreturn {{ {", ".join(exports)} }};\n}})();'
