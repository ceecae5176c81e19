"""Optional parts: each works without the others, and a package that is missing is named with what brings it."""

import json
import subprocess
import sys
from importlib import import_module

import pytest

from shardfit.core.extras import MissingPart, extras, modules_of, remedy

# which optional part the modules below a name need; all others must do without any
NEEDED = {
    "shardfit.domains.vlbi": "vlbi",
    "shardfit.cli.vlbi": "vlbi",
    "shardfit.domains.seismic": "seismic",
    "shardfit.cli.seismic": "seismic",
    "shardfit.report.server": "serve",
    "shardfit.report.listening": "serve",
    "shardfit.report.live.server": "serve",
}

ALONE = """
import importlib, json, pkgutil, sys

parts, needed = json.loads(sys.argv[1]), json.loads(sys.argv[2])
allowed = set()

class Blocked:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in allowed and any(top in modules for modules in parts.values()):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def load(names):
    missing = {}
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing[name] = error.name
    return missing

sys.meta_path.insert(0, Blocked())
import shardfit

def part_of(name):
    return next((part for start, part in needed.items() if name == start or name.startswith(start + ".")), None)

every = [m.name for m in pkgutil.walk_packages(shardfit.__path__, "shardfit.") if not m.name.endswith("__main__")]
found = {"none": {name: lack for name, lack in load(every).items() if part_of(name) is None}}
for part in sorted(set(needed.values())):
    for name in [name for name in sys.modules if any(name.partition(".")[0] in modules for modules in parts.values())]:
        del sys.modules[name]
    allowed = set(parts[part])
    found[part] = load([name for name in every if part_of(name) == part])
print(json.dumps({"modules": len(every), "missing": found}))
"""


def test_every_part_works_without_the_others():
    parts = json.dumps({extra: sorted(modules_of(extra)) for extra in extras()})
    command = [sys.executable, "-c", ALONE, parts, json.dumps(NEEDED)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert told["modules"] > 300
    assert not any(told["missing"].values()), told["missing"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("yaml", "pip install 'shardfit[xpcs]'"),
        ("jaxtyping.sub", "pip install 'shardfit[seismic]' or pip install 'shardfit[vlbi]'"),
        ("jax_finufft", "pip install 'shardfit[vlbi]'"),
        ("somewhere", ""),
    ],
)
def test_what_to_install(module, expected):
    assert remedy(ModuleNotFoundError(name=module)) == expected


# what asks for a package of an optional part, in Python, that may be missing: the module, the part, and the call
ASKING = {
    "optax": ("solvers", "shardfit.solve.optax_loop", lambda home: home.named_transform("adam", 0.1, {})),
    "matplotlib.layout_engine": ("report", "shardfit.report.style", lambda home: home.new_figure()),
    "PIL": ("report", "shardfit.report.style", lambda home: home.png_bytes(None)),
    "astropy.io": ("vlbi", "shardfit.domains.vlbi.fits_image", lambda home: home.write_image(None, "x.fits")),
    "segyio": ("seismic", "shardfit.domains.seismic.segy", lambda home: home.write_model("x.segy", None, 1.0)),
    "numpyro": ("numpyro", "shardfit.sampling.numpyro_models", lambda home: home.from_numpyro(lambda: None, rows={})),
    "blackjax": ("blackjax", "shardfit.sampling.engines", lambda home: home._by_blackjax(*[None] * 3, **SAMPLING)),
    "yaml": ("xpcs", "shardfit.cli.xpcs.config", lambda home: home.read_config("x.yaml")),
    "h5py": ("xpcs", "shardfit.core.untrusted", lambda home: home.open_hdf5("x.h5", "xpcs").__enter__()),
}
SAMPLING = dict.fromkeys(("draws", "warmup", "target_accept", "max_depth"))


@pytest.mark.parametrize("module", ASKING)
def test_python_says_what_to_install(module, monkeypatch):
    part, home, ask = ASKING[module]
    home = import_module(home)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPart, match=rf"needs {module.partition('.')[0]}.*pip install 'shardfit\[{part}\]'"):
        ask(home)


def test_a_command_says_what_to_install(monkeypatch, capsys):
    from shardfit.cli import main

    def fails(*_):
        raise ModuleNotFoundError("No module named 'jaxtyping'", name="jaxtyping")

    monkeypatch.setattr("shardfit.cli.devices.run", fails)
    assert main(["devices"]) == 2
    assert "pip install 'shardfit[vlbi]'" in capsys.readouterr().err


def test_a_command_that_draws_says_so_before_it_works(monkeypatch, capsys, tmp_path):
    from shardfit.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["population", "init", "smf.toml"]) == 0
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["population", "fit", "smf.toml", "--out", "run"]) == 2
    assert "pip install 'shardfit[report]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
