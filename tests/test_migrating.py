"""Guides for users of other packages: their code runs in environments of its own, and gives the answers of ours."""

import ast
import json
import re
import shutil
import subprocess
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.peers import peer_python
from shardfit import data
from tests.test_docs import ROOT, blocks

PAGES = {page.stem: page for page in sorted((ROOT / "docs" / "migrating").glob("*.md"))}
M87 = data.folder("m87") / "SR1_M87_2017_101_lo_hops_netcal_StokesI.uvfits"
# the package that a block's first line names → its environment; what is quoted runs nowhere
PEERS = {"DiffOpt 2.0.0": "diffopt", "eht-imaging 1.3.2": "ehtim", "deepwave 0.1.0": "deepwave", "SWEEP 0.3.5": "sweep"}
QUOTED = ("homodyne 2.23.2, quoted", "eht-imaging, branch feature/jax-optimizers-sharding; not run here")
# (page, number of the pair): how far answers may be apart, relative to the peer's, and why
APART = {
    ("diffopt", 0): 1e-5,  # float32 against float64
    ("diffopt", 1): 1e-5,
    ("diffopt", 2): 0.05,  # random draws of 100 steps
    ("diffopt", 3): 0.02,  # swarms with weights of their own
    ("ehtim", 0): 1e-6,  # channels are averaged in float32 there
    ("ehtim", 1): 0.01,  # objectives after 300 iterations, ours lower
    ("deepwave", 0): 1e-4,
    ("deepwave", 1): 5e-3,  # absorbing layers of another kind
    ("deepwave", 2): 0.02,  # misfits after five steps of Adam
}
SAVE = "import json, numpy as np\nnp.save({path!r}, np.asarray(answer, float))\nprint(json.dumps('done'))\n"


def names():
    """Line and package of every block of another package."""
    return [
        (page, line, text.splitlines()[0].removeprefix("# ").partition(":")[0])
        for page in PAGES.values()
        for line, text in blocks(page, "py")
    ]


def pairs(page):
    """Blocks of other packages that run, each with what ours printed so far, itself included."""
    found, ours = [], []
    waiting = None
    for _, text in blocks(page, "python", "py"):
        peer = PEERS.get(text.splitlines()[0].removeprefix("# "))
        if peer:
            waiting = peer, text
        elif not text.startswith("# "):
            ours.append(text)
            if waiting:
                found.append((*waiting, list(ours)))
                waiting = None
    return found


def test_every_block_of_another_package_is_run_or_said_to_be_quoted():
    assert {package for _, _, package in names()} == {*PEERS, *QUOTED}
    compared = [(page.stem, k) for page in PAGES.values() for k in range(len(pairs(page)))]
    assert sorted(compared) == sorted(APART)


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_blocks_of_other_packages_are_python(page):
    for line, text in blocks(page, "py"):
        assert ast.parse(text), line


def test_the_configuration_of_the_guide_is_that_of_the_benchmark():
    ((_, text),) = blocks(PAGES["deepwave"], "toml")
    assert tomllib.loads(text) == tomllib.loads((ROOT / "benchmarks" / "sweep_marmousi.toml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("page", "k"), APART, ids=lambda part: str(part))
def test_both_sides_give_the_same_answer(page, k, tmp_path, monkeypatch):
    peer, theirs, ours = pairs(PAGES[page])[k]
    monkeypatch.chdir(tmp_path)
    shutil.copy(M87, tmp_path / "m87.uvfits")
    (tmp_path / "block.py").write_text(theirs + SAVE.format(path=str(tmp_path / "answer.npy")))
    done = subprocess.run([peer_python(peer), "block.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    namespace: dict = {"__name__": "page"}
    for text in ours:
        exec(text, namespace)
    expected, found = np.load(tmp_path / "answer.npy"), np.asarray(namespace["answer"], float)
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= APART[page, k] * np.linalg.norm(expected)


@pytest.mark.slow
def test_an_observation_of_eht_imaging_is_that_of_the_file(tmp_path):
    """The object itself, by its fields: its environment has none of our packages."""
    from shardfit.domains import vlbi

    program = (
        "import json, sys, numpy as np, ehtim as eh\n"
        "obs = eh.obsdata.load_uvfits(sys.argv[1])\n"
        "np.savez(sys.argv[2], data=obs.data, tarr=obs.tarr)\n"
        "print(json.dumps({k: getattr(obs, k) for k in ('ra', 'dec', 'rf', 'bw', 'mjd', 'source')}))\n"
    )
    command = [peer_python("ehtim"), "-c", program, M87, tmp_path / "obs.npz"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with np.load(tmp_path / "obs.npz") as kept:
        found = vlbi.from_obsdata(
            SimpleNamespace(data=kept["data"], tarr=kept["tarr"], **json.loads(said.splitlines()[-1]))
        )
    expected = vlbi.read_uvfits(M87)
    assert found.baseline_names == expected.baseline_names
    assert np.allclose(found.vis["I"], expected.vis["I"], rtol=1e-5, atol=1e-6)
    assert np.allclose(found.sigma["I"], expected.sigma["I"], rtol=1e-5)


def test_tables_of_concepts_name_what_exists():
    """Names in backticks on our side of a guide that look like public names are public."""
    import shardfit
    from shardfit.domains import seismic, vlbi, xpcs

    for stem, science in (("ehtim", vlbi), ("deepwave", seismic), ("homodyne", xpcs)):
        rows = re.findall(r"^\|.*\| ([^|]+) \|$", PAGES[stem].read_text(), re.MULTILINE)
        known = {*science.__all__, *shardfit.__all__}
        for name in (n for row in rows for n in re.findall(r"`([a-z]+_[a-z_]+)\(", row)):
            assert name in known or any(hasattr(part, name) for part in _modules(stem)), (stem, name)


def _modules(stem):
    import shardfit.domains.seismic.files as files
    import shardfit.domains.seismic.recipes as inversion
    import shardfit.domains.vlbi.operations as operations
    import shardfit.domains.vlbi.recipes.surveys as surveys
    from shardfit.domains.vlbi import Observation
    from shardfit.sampling.posterior import Posterior

    return {"ehtim": (operations, surveys, Observation), "deepwave": (files, inversion), "homodyne": (Posterior,)}[stem]
