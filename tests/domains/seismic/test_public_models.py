"""Marmousi: found in a folder, downloaded when asked, refused when it is another file."""

import hashlib

import numpy as np
import pytest

from shardfit.domains.seismic import public_models
from shardfit.domains.seismic.public_models import marmousi


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A file of the published layout, with its checksum made known."""
    values = np.random.default_rng(0).uniform(1.5, 4.7, public_models.SHAPE).astype("<f4")
    file = tmp_path / "server" / public_models.PUBLISHED
    file.parent.mkdir()
    file.write_bytes(values.tobytes())
    monkeypatch.setitem(public_models.SUMS, public_models.PUBLISHED, hashlib.sha256(values.tobytes()).hexdigest())
    monkeypatch.setattr(public_models, "URL", file.as_uri())
    return file, values


def test_copies_agree(marmousi_data):
    fine, coarse = marmousi(7.5, marmousi_data), marmousi(30.0, marmousi_data)
    assert coarse.velocity.shape == (101, 401) and coarse.dh == (30.0, 30.0)
    assert np.array_equal(fine.velocity[::4, ::4], coarse.velocity)


def test_folder_from_the_environment(marmousi_data, monkeypatch):
    monkeypatch.setenv("SHARDFIT_DATA", str(marmousi_data))
    assert marmousi(15.0).velocity.shape == (201, 801)


@pytest.mark.parametrize(("spacing", "step"), [(7.5, 1), (30.0, 4)])
def test_published_file(published, spacing, step):
    file, values = published
    found = marmousi(spacing, file.parent)
    assert found.dh == (spacing, spacing)
    assert np.array_equal(found.velocity, 1000 * values.T[::step, ::step])


def test_download_only_when_asked(published, tmp_path):
    folder = tmp_path / "data"
    with pytest.raises(FileNotFoundError, match="holds no Marmousi model.*SHARDFIT_DATA"):
        marmousi(30.0, folder)
    assert not folder.exists()
    assert marmousi(30.0, folder, download=True).velocity.shape == (101, 401)
    assert [p.name for p in folder.iterdir()] == [public_models.PUBLISHED]


def test_wrong_checksum(published, tmp_path):
    file, _ = published
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(ValueError, match="SHA-256 is .*Delete it"):
        marmousi(30.0, file.parent)
    with pytest.raises(ValueError, match="SHA-256"):
        marmousi(30.0, tmp_path / "data", download=True)
    assert not list((tmp_path / "data").iterdir())


def test_no_network(monkeypatch, tmp_path):
    monkeypatch.setattr(public_models, "URL", (tmp_path / "nothing").as_uri())
    with pytest.raises(OSError, match="could not be downloaded"):
        marmousi(30.0, tmp_path, download=True)


def test_unknown_spacing():
    with pytest.raises(ValueError, match="7.5, 15, 30"):
        marmousi(10.0)
