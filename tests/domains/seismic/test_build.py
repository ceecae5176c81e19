"""The cache of compiled kernels: what is damaged, planted or another's is never loaded."""

import os
import stat

import pytest

from shardfit.domains.seismic import Native, build, native

COMPILER = """#!/bin/sh
# writes a fixed text where -o says, and counts its calls
while [ "$1" != "-o" ]; do shift; done
printf 'a library' > "$2"
echo called >> "$CALLS"
"""


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """A cache of its own, and a compiler that takes no time."""
    program, calls = tmp_path / "compile", tmp_path / "calls"
    program.write_text(COMPILER)
    program.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", f"{program} -some-word")
    monkeypatch.setenv("CALLS", str(calls))
    return lambda: len(calls.read_text().splitlines())


def test_words_of_the_compiler_are_kept(calls):
    program = build.compiler()
    assert program is not None
    assert program[1:] == ("-some-word",)


def test_a_named_compiler_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-ccache g++")
    with pytest.raises(build.BuildError, match="CXX='no-such-ccache g\\+\\+' names a program that is not installed"):
        build.command("acoustic", 2, tmp_path / "kernel.so")


def test_once_built_no_compiler_is_needed(calls, monkeypatch):
    path = build.library_path("acoustic", 2)
    assert path.read_text() == "a library"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(build, "compiler", lambda: None)
    assert build.library_path("acoustic", 2) == path
    assert calls() == 1


def truncated(path):
    path.write_bytes(path.read_bytes()[:3])


def garbage(path):
    path.write_bytes(b"\x7fELF" + bytes(100))


def writable_by_all(path):
    path.chmod(0o666)


def linked(path):
    other = path.with_name("other.so")
    path.rename(other)
    path.symlink_to(other)


def without_checksum(path):
    path.with_suffix(".sha256").unlink()


def of_another_user(path):
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)


@pytest.mark.parametrize("harm", [truncated, garbage, writable_by_all, linked, without_checksum, of_another_user])
@pytest.mark.parametrize("kind", ["acoustic", "acoustic_3d"])
def test_damaged_and_planted_libraries_are_built_anew(calls, kind, harm, caplog):
    path = build.library_path(kind, 2)
    path.with_suffix(".checked").touch()
    harm(path)
    assert build.library_path(kind, 2) == path
    assert path.read_text() == "a library"
    assert not path.is_symlink()
    assert path.stat().st_uid == os.getuid()
    assert calls() == 2
    assert "compiled again" in caplog.text
    assert not path.with_suffix(".checked").exists()


def test_damage_without_a_compiler_is_said(calls, monkeypatch):
    truncated(build.library_path("acoustic", 2))
    monkeypatch.setattr(build, "compiler", lambda: None)
    monkeypatch.delenv("CXX")
    with pytest.raises(build.BuildError, match="no C\\+\\+ compiler"):
        build.library_path("acoustic", 2)


def test_folder_of_another_user_is_refused(calls, monkeypatch):
    build.library_path("acoustic", 2)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(build.BuildError, match="belongs to another user.*XDG_CACHE_HOME"):
        build.library_path("acoustic", 2)


def test_folder_open_to_others_is_closed(calls):
    folder = build.library_path("acoustic", 2).parent
    folder.chmod(0o777)
    build.library_path("acoustic", 2)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_cannot_be_loaded_is_a_build_error(calls):
    build.library.cache_clear()
    with pytest.raises(build.BuildError, match="cannot be loaded"):
        build.library("acoustic", 2)


def test_threads_are_those_of_the_process(monkeypatch):
    monkeypatch.setattr("jax.local_device_count", lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for told, expected in (("", 8), ("3", 3), ("64", 8), ("0", 8)):
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert native.usable_threads(Native()) == expected
    assert native.usable_threads(Native(threads=5)) == 5
