"""Data sets of the package: complete, small, with origin and licence; and the reference numbers of the tests."""

import hashlib
import json

import numpy as np
import pytest

from shardfit import data
from shardfit.cli import main
from tests.reference import REFERENCE

NAMES = [dataset.name for dataset in data.DATASETS if dataset.shipped]


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


def test_list_and_get(capsys, tmp_path):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in NAMES) and "public domain" in out
    assert main(["data", "get", "m87", str(tmp_path)]) == 0
    assert str(tmp_path / "m87" / "README.md") in capsys.readouterr().out
    copied = {p.name: p.read_bytes() for p in (tmp_path / "m87").iterdir()}
    assert copied == {p.name: p.read_bytes() for p in data.folder("m87").iterdir()}


def test_get_refuses(capsys, tmp_path):
    (tmp_path / "xpcs").mkdir()
    assert main(["data", "get", "xpcs", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["data", "get", "m78", str(tmp_path)]) == 2
    assert "Did you mean 'm87'" in capsys.readouterr().err


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A data set on a server: a folder of files, known by their checksums."""
    server = tmp_path / "server"
    server.mkdir()
    (server / "night.txt").write_bytes(b"visibilities")
    known = {(server / "night.txt").as_uri(): hashlib.sha256(b"visibilities").hexdigest()}
    nights = data.Dataset("nights", "made up", "none", known, 12)
    monkeypatch.setattr(data, "DATASETS", (*data.DATASETS, nights))
    monkeypatch.setenv("SHARDFIT_DATA", str(tmp_path / "cache"))
    return server / "night.txt"


def test_a_download_is_kept_and_checked(remote, tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="shardfit data get nights"):
        data.folder("nights")
    assert main(["data", "get", "nights", str(tmp_path)]) == 0
    assert (tmp_path / "nights" / "night.txt").read_bytes() == b"visibilities"
    assert data.folder("nights") == tmp_path / "cache" / "nights"
    remote.unlink()  # it is in the cache now
    assert data.get("nights") == data.folder("nights")
    (data.folder("nights") / "night.txt").write_bytes(b"something else")
    assert main(["data", "get", "nights"]) == 2
    assert "SHA-256" in capsys.readouterr().err


def test_without_a_network(remote, tmp_path, capsys):
    remote.unlink()
    assert main(["data", "get", "nights"]) == 2
    told = capsys.readouterr().err
    assert (
        "could not be downloaded" in told and "another machine" in told and str(tmp_path / "cache" / "nights") in told
    )
    assert not list((tmp_path / "cache" / "nights").iterdir())
