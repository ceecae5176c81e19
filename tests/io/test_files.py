"""write_atomic: the old file or the new one, never a part."""

import zipfile

import numpy as np
import pytest

from shardfit.io.files import read_arrays, write_arrays, write_atomic


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "state.bin"
    for content in (b"one", b"two"):
        write_atomic(path, lambda file, c=content: file.write(c))
        assert path.read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["state.bin"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_no_rubbish(tmp_path, error):
    path = tmp_path / "state.bin"
    path.write_bytes(b"old")

    def write(file):
        file.write(b"half of the new")
        raise error("disk full")

    with pytest.raises(error, match="disk full"):
        write_atomic(path, write)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["state.bin"]


def test_a_missing_folder_is_said_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "state.bin", lambda file: file.write(b""))


def test_memory_is_not_taken_for_what_a_header_only_claims(tmp_path):
    """A header that was changed asks for 32 GB; what is in the file is a few bytes."""
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.zeros(3)})
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    content["x.npy"] = content["x.npy"].replace(b"(3,), }" + b" " * 9, b"(4294967296,), }")
    with zipfile.ZipFile(path, "w") as archive:
        for name, member in content.items():
            archive.writestr(name, member)
    with pytest.raises(ValueError, match="a.npz is damaged.*says that it has shape"):
        read_arrays(path)
