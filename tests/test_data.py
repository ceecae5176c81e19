"""Data sets of the package: complete, small, with origin and licence; and the reference numbers of the tests."""

import json

import numpy as np
import pytest

from shardfit import data
from shardfit.cli import main
from tests.reference import REFERENCE

NAMES = [dataset.name for dataset in data.DATASETS]


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", NAMES)
def test_a_data_set_says_where_it_comes_from(name):
    text = (data.folder(name) / "README.md").read_text(encoding="utf-8")
    assert "Origin:" in text and "Licence:" in text
    if "BSD" in text:
        assert "Redistribution and use" in (data.folder(name) / "LICENSE").read_text(encoding="utf-8")


def test_every_folder_is_listed():
    folder = data.folder("m87").parent
    assert sorted(NAMES) == sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name[0] != "_")


def test_all_of_it_is_small():
    assert size(data.folder("m87").parent) < 5e6  # the wheel stays light
    assert size(REFERENCE) < 12e6


@pytest.mark.parametrize("folder", [p for p in REFERENCE.iterdir() if p.is_dir()], ids=lambda p: p.name)
def test_reference_numbers_say_where_they_come_from(folder):
    assert "Licence:" in (folder / "README.md").read_text(encoding="utf-8")


def test_reference_draws_agree_with_their_summaries():
    folder = data.folder("posteriordb")
    summaries = json.loads((folder / "summaries.json").read_text())
    assert len(summaries) == 6
    for summary in summaries.values():
        with np.load(folder / summary["draws_file"]) as draws:
            assert set(draws.files) == set(summary["parameters"])
            for name, known in summary["parameters"].items():
                assert draws[name].shape == (10, 1000)
                assert draws[name].mean(dtype=float) == pytest.approx(known["mean"], abs=1e-6 * known["sd"])


def test_list_and_copy(capsys, tmp_path):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES) and "public domain" in out
    assert main(["data", "copy", "m87", str(tmp_path)]) == 0
    assert str(tmp_path / "m87" / "README.md") in capsys.readouterr().out
    copied = {p.name: p.read_bytes() for p in (tmp_path / "m87").iterdir()}
    assert copied == {p.name: p.read_bytes() for p in data.folder("m87").iterdir()}


def test_copy_refuses(capsys, tmp_path):
    (tmp_path / "xpcs").mkdir()
    assert main(["data", "copy", "xpcs", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["data", "copy", "m78", str(tmp_path)]) == 2
    assert "Did you mean 'm87'" in capsys.readouterr().err
