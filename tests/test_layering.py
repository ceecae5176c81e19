"""Who may import whom: the layers of the package, held by reading the source.

core <- options <- check, distributed, io, solve, stats <- planning, surveys <- fitting <- sampling <- report <- cli; a
domain's physics uses core, options and stats only. Imports inside functions count as well. Snippets that break each
rule test the checker itself.
"""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "shardfit"

MIDDLE = {"core", "check", "distributed", "io", "options", "solve", "stats"}
UPPER = {"planning", "sampling", "surveys", "root"}
MAY_IMPORT = {
    "core": set(),
    "options": {"core"},
    "distributed": {"core"},
    "stats": {"core"},
    "check": {"core", "distributed"},
    "io": {"core", "distributed", "options"},
    "solve": {"core", "distributed", "options", "stats"},
    "data": {"core"},
    "planning": MIDDLE,
    "sampling": MIDDLE | {"planning", "surveys", "root"},  # it fits first, and runs many chains in slots
    "surveys": MIDDLE | {"planning"},  # slots are sized by it
    "root": MIDDLE | {"planning"},  # modules beside __init__.py
    "front": MIDDLE | UPPER,  # shardfit/__init__.py
    "report": MIDDLE | UPPER,
    "cli": MIDDLE | UPPER | {"report", "data", "domains"},
    "physics": {"core", "options", "stats", "data"},  # public data sets
    "plots": {"core", "stats", "report"},
    "recipes": MIDDLE | UPPER | {"report"},
}
# files (relative to the package) that may import an optional package at module level
OWNERS = {
    "optax": ["solve/*optax*.py"],
    "optimistix": ["solve/*optimistix*.py"],
    "matplotlib": ["report/figures.py", "domains/*/plots.py"],
    "astropy": ["domains/*/data.py"],
    "h5py": ["domains/*/data.py"],
    "segyio": [],
    "numpyro": ["sampling/*numpyro*.py"],
    "arviz": [],
    "blackjax": [],
    "starlette": ["report/server.py", "report/live/server.py"],
    "uvicorn": ["report/listening.py"],
    "mpi4py": [],
}
ROOT = {
    "curvature",
    "curves",
    "fitting",
    "implicit",
    "intervals",
    "robust",
    "run_options",
    "sciences",
    "series",
}  # modules beside __init__.py
COLLECTIVES = {"shard_map", "psum", "pcast"}
SWITCHES = {"enable_x64", "jax_enable_x64"}
PICKLES = {"pickle", "cPickle", "cloudpickle", "dill"}


def layer_of(parts: tuple[str, ...]) -> str:
    """Layer of a module given by its path inside the package, without the suffix."""
    if parts[0] == "__init__":
        return "front"
    if len(parts) == 1 and parts[0] in ROOT:
        return "root"
    if parts[0] == "__main__":
        return "cli"
    if parts[0] == "domains" and len(parts) > 2:
        return parts[2] if parts[2] in ("recipes", "plots") else "physics"
    return parts[0]


def imports(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and absolute dotted name of everything imported, wherever it stands in the file."""

    def absolute(level: int, name: str) -> tuple[str, ...]:
        base = package[: len(package) - level + 1] if level else ()
        return base + tuple(filter(None, name.split(".")))

    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, absolute(0, alias.name)) for alias in node.names)
            case ast.ImportFrom():
                base = absolute(node.level, node.module or "")
                yield from ((node.lineno, (*base, alias.name)) for alias in node.names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                bare = name.lstrip(".")
                yield node.lineno, absolute(len(name) - len(bare), bare)


def module_level(tree: ast.Module) -> Iterator[ast.stmt]:
    """Statements that run on import: not the bodies of functions, nor of `if TYPE_CHECKING`."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.stmt):
            yield node
        pending.extend(ast.iter_child_nodes(node))


def direction(parts: tuple[str, ...], target: tuple[str, ...]) -> str | None:
    """Complaint about one import of `shardfit.<target>` by the module `parts`, or None."""
    here = layer_of(parts)
    # `from shardfit import Objective` asks the root; `from shardfit import core` asks the layer
    top = target[0] if target and target[0] in (*MAY_IMPORT, "domains") else "root"
    if parts[0] == "domains" and top == "domains":
        if len(parts) < 3 or len(target) < 2 or target[1] != parts[1]:
            return "a domain never imports another domain"
        inner = target[2] if len(target) > 2 else ""
        if here == "physics" and parts[2] != "__init__" and inner in ("recipes", "plots"):
            return f"physics does not import its domain's {inner}"
        return None
    if here == top or top in MAY_IMPORT.get(here, set()):
        return None
    return f"{here} does not import {top}"


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every identifier, imported names included."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=text) | ast.Attribute(attr=text):
                yield node.lineno, text
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                dotted = [alias.name for alias in aliases] + [getattr(node, "module", None) or ""]
                yield from ((node.lineno, part) for name in dotted for part in name.split("."))


def broken_direction(file: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    parts = PurePosixPath(file).with_suffix("").parts
    for line, name in imports(tree, ("shardfit", *parts[:-1])):
        if name[:1] == ("shardfit",) and (complaint := direction(parts, name[1:])):
            yield line, f"{complaint} ({'.'.join(name)})"


def eager_imports(file: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for statement in module_level(tree):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for line, name in imports(statement, ("shardfit",)):
                if not any(fnmatch(file, pattern) for pattern in OWNERS.get(name[0], ["*"])):
                    yield line, f"import {name[0]} inside the function that uses it"


def forbidden_names(file: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    for line, text in names(tree):
        if text in COLLECTIVES and file != "core/reduce.py":
            yield line, f"only core/reduce.py names {text}"
        if text in SWITCHES and file != "core/precision.py":
            yield line, f"only core/precision.py names {text}"
        if text == "clear_caches" and file != "core/loaded_programs.py":
            yield line, "JAX's caches are the whole program's: never cleared"
        if text in PICKLES:
            yield line, "nothing is pickled"
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            yield node.value.lineno, "nothing is pickled: allow_pickle may only be False"


def violations(file: str, source: str) -> list[str]:
    """Broken rules of one file, given by its path relative to the package."""
    tree = ast.parse(source, file)
    rules = (broken_direction, eager_imports, forbidden_names)
    found = {complaint for rule in rules for complaint in rule(file, tree)}
    return [f"{file}:{line}: {text}" for line, text in sorted(found)]


def test_package_holds_its_layers():
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source under {PACKAGE}"
    broken = [
        complaint
        for file in files
        for complaint in violations(file.relative_to(PACKAGE).as_posix(), file.read_text(encoding="utf-8"))
    ]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize(
    ("file", "source", "complaint"),
    [
        ("core/terms.py", "from shardfit.solve import base", "core does not import solve"),
        ("core/terms.py", "from ..solve.base import Solver", "core does not import solve"),
        ("core/__init__.py", "from ..io import run_dir", "core does not import io"),
        ("core/terms.py", "from shardfit import solve", "core does not import solve"),
        ("core/terms.py", "from shardfit import Objective", "core does not import root"),
        ("core/terms.py", "def f():\n    from ..stats import kde", "core does not import stats"),
        ("core/mesh.py", "import_module('shardfit.io')", "core does not import io"),
        ("solve/lbfgs.py", "from ..io import lock", "solve does not import io"),
        ("planning/timing.py", "from ..fitting import fit", "planning does not import root"),
        ("fitting.py", "from .surveys import slots", "root does not import surveys"),
        ("__init__.py", "from .cli import main", "front does not import cli"),
        ("report/html.py", "import shardfit.cli", "report does not import cli"),
        ("domains/vlbi/terms.py", "from shardfit.solve import lbfgs", "physics does not import solve"),
        ("domains/vlbi/terms.py", "from ...fitting import fit", "physics does not import root"),
        ("domains/vlbi/terms.py", "from .recipes import image", "not import its domain's recipes"),
        ("domains/vlbi/recipes.py", "from ..xpcs import data", "never imports another domain"),
        ("domains/__init__.py", "from . import vlbi", "never imports another domain"),
        ("core/objective.py", "import jax\njax.shard_map", "only core/reduce.py names shard_map"),
        ("solve/swarm.py", "from jax.lax import psum", "only core/reduce.py names psum"),
        ("stats/kde.py", "import jax\ndef f(x): return jax.lax.pcast(x)", "only core/reduce.py names pcast"),
        ("stats/kde.py", "import jax\nwith jax.enable_x64(True): pass", "only core/precision.py names enable_x64"),
        ("core/precision.py", "import jax\njax.clear_caches()", "never cleared"),
        ("io/results.py", "def f():\n    import pickle", "nothing is pickled"),
        ("io/results.py", "import numpy as np\nnp.load('a', allow_pickle=True)", "nothing is pickled"),
        ("core/params.py", "import optax", "import optax inside"),
        ("solve/base.py", "try:\n    from optax import adam\nfinally:\n    pass", "import optax inside"),
        ("report/html.py", "import matplotlib.pyplot as plt", "import matplotlib inside"),
    ],
)
def test_checker_flags(file, source, complaint):
    assert complaint in "\n".join(violations(file, source))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("__init__.py", "from .core import terms\nfrom .fitting import fit\nfrom shardfit.io import results"),
        ("fitting.py", "from shardfit.core import problem\nfrom .solve import base\nfrom . import planning"),
        ("core/reduce.py", "import jax\nfrom jax import shard_map\njax.lax.psum\njax.lax.pcast"),
        ("core/precision.py", "import jax\njax.enable_x64(jax.config.jax_enable_x64)"),
        ("core/objective.py", "from . import reduce\nfrom .terms import Term"),
        ("core/objective.py", '"""Sums rows; psum and pickle may be spoken of."""'),
        ("solve/base.py", "def f():\n    import optax"),
        ("solve/base.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import optax"),
        ("solve/optax_loop.py", "import optax"),
        ("io/results.py", "import numpy as np\nnp.load('a', allow_pickle=False)"),
        ("surveys/slots.py", "from ..solve.base import Solver\nfrom ..stats import kde"),
        ("domains/vlbi/terms.py", "from ...core.terms import penalty\nfrom .forward import dft"),
        ("domains/vlbi/__init__.py", "from .recipes import image"),
        ("domains/vlbi/recipes.py", "from shardfit import fit\nfrom shardfit.solve.lbfgs import LBFGS"),
        ("cli/__init__.py", "import shardfit\nfrom ..domains.vlbi import recipes"),
        ("__main__.py", "from .cli import main"),
    ],
)
def test_checker_accepts(file, source):
    assert violations(file, source) == []
