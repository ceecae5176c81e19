"""`import shardfit` and the command line's help load neither JAX nor optional packages; lazy names are complete."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONAL = {"optax", "optimistix", "equinox", "matplotlib", "astropy", "numpyro", "h5py"}
LAZY = ("shardfit", "shardfit.domains.vlbi", "shardfit.domains.xpcs")

HELP = """
import contextlib, importlib, io
from shardfit.cli.app import main
from shardfit.cli.commands import Command, all_commands

def every(commands, above=()):
    for command in commands:
        yield (*above, command.name)
        below = getattr(importlib.import_module(command.module), "COMMANDS", ())
        yield from every([one for one in below if isinstance(one, Command)], (*above, command.name))

words = list(every(all_commands()))
assert ("vlbi", "image") in words
with contextlib.redirect_stdout(io.StringIO()):
    for line in [(), *words]:
        assert main([*line, "--help"]) == 0, line
"""


def packages_after(code: str) -> set[str]:
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("package", LAZY)
def test_importing_a_package_loads_neither_jax_nor_numpy(package):
    assert not packages_after(f"import {package}") & {"jax", "numpy", "scipy", *OPTIONAL}


def test_a_fit_leaves_optional_packages_alone():
    assert not packages_after("from shardfit import *") & OPTIONAL


def test_help_of_every_command_does_without_jax():
    assert not packages_after(HELP) & {"jax", "scipy", *OPTIONAL}


@pytest.mark.parametrize("package", LAZY)
def test_lazy_names_are_those_that_type_checkers_see(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert sorted(seen) == sorted(module.__all__)
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(str(home)), name)
    assert set(module.__all__) <= set(dir(module))


def test_a_name_that_does_not_exist():
    shardfit = importlib.import_module("shardfit")
    with pytest.raises(AttributeError, match="no attribute 'fti'"):
        shardfit.fti  # noqa: B018
