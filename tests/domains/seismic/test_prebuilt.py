"""Kernels that come compiled with a wheel: which is taken, and that it is loaded as safely as one compiled here."""

import subprocess
from pathlib import Path

import jax
import pytest

from shardfit.cli.seismic import doctor
from shardfit.domains.seismic import Simulation, build, choose_engine, engines, native, prebuilt
from shardfit.domains.seismic.build import BuildError

LEVELS = {"good": frozenset({"sse"}), "better": frozenset({"sse", "avx"})}
HERE = prebuilt.interface()
SIM = Simulation(shape=(12, 12), dh=10.0, dt=1e-3, nt=8, v_max=1600.0, f_peak=25.0)


@pytest.fixture
def wheel(monkeypatch, tmp_path):
    """A package with kernels, a cache of its own, no compiler; returns what puts a kernel into the package."""
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path / "prebuilt")
    monkeypatch.setattr(prebuilt, "LEVELS", {"machine": dict(reversed(LEVELS.items()))})
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "machine")
    monkeypatch.setattr(prebuilt, "features", lambda: LEVELS["better"])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build, "compiler", lambda: None)
    prebuilt.FOLDER.mkdir()

    def put(level: str, content: bytes = b"a kernel", version: tuple[int, int] = HERE) -> Path:
        path = prebuilt.FOLDER / prebuilt._name("acoustic", 2, level, version)
        path.write_bytes(content)
        return path

    return put


def test_the_best_level_that_the_processor_has(wheel, monkeypatch):
    assert prebuilt.find("acoustic", 2) is None
    good, better = wheel("good"), wheel("better")
    assert prebuilt.find("acoustic", 2) == better
    monkeypatch.setattr(prebuilt, "features", lambda: LEVELS["good"])
    assert prebuilt.find("acoustic", 2) == good
    monkeypatch.setattr(prebuilt, "features", frozenset)
    assert prebuilt.find("acoustic", 2) is None
    assert prebuilt.find("elastic", 2) is None


def test_kernels_for_a_later_jaxlib_or_of_other_sources_are_left(wheel, monkeypatch):
    later = wheel("better", version=(HERE[0], HERE[1] + 1))
    wheel("better", version=(HERE[0] + 1, 0))
    assert prebuilt.find("acoustic", 2) is None
    earlier = wheel("good", version=(HERE[0], HERE[1] - 1))
    assert prebuilt.find("acoustic", 2) == earlier
    monkeypatch.setattr(prebuilt, "interface", lambda: (HERE[0], HERE[1] + 2))
    assert prebuilt.find("acoustic", 2) == later
    monkeypatch.setattr(build, "source_digest", lambda: "other")
    assert prebuilt.find("acoustic", 2) is None


def test_it_is_copied_where_nobody_else_writes_and_needs_no_compiler(wheel):
    wheel("better")
    path = build.library_path("acoustic", 2)
    assert path.read_bytes() == b"a kernel" and path.parent == build.cache_folder()
    assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(b"planted")
    assert build.library_path("acoustic", 2).read_bytes() == b"a kernel"


def test_a_compiler_that_is_named_is_used(wheel, monkeypatch):
    wheel("better")
    monkeypatch.setenv("CXX", "/bin/false")
    monkeypatch.setattr(build, "compiler", lambda: ("/bin/false",))
    with pytest.raises(BuildError, match="/bin/false failed to compile"):
        build.library_path("acoustic", 2)


def test_what_jaxlib_refuses_is_said_and_jax_computes(monkeypatch):
    """XLA drops what was compiled for interfaces of long ago."""

    def refuse(*_, **__):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: the handler's API version is incompatible.")

    monkeypatch.setattr(native, "register", native.register.__wrapped__)
    monkeypatch.setattr(engines, "_check_native", engines._check_native.__wrapped__)
    monkeypatch.setattr(native, "library", lambda *_: type("Library", (), dict.fromkeys(_names()))())
    monkeypatch.setattr(jax.ffi, "pycapsule", lambda function: function)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.raises(BuildError, match="does not take the compiled kernel: .*incompatible. With CXX=g"):
        choose_engine("native", SIM)
    assert choose_engine("auto", SIM)[0] == "jax"


def _names():
    return [f"{direction}_{dtype}" for direction in native.DIRECTIONS for dtype in ("float32", "float64")]


def test_the_doctor_says_where_the_kernel_is_from(wheel, monkeypatch):
    wheel("better")
    build.library_path("acoustic", 2)
    assert doctor._origin(2) == "came compiled with the package"
    wheel("better", b"of a newer wheel")
    assert doctor._origin(2) == "compiled here before; no compiler now"
    monkeypatch.setattr(build, "compiler", lambda: ("/usr/bin/c++",))
    assert doctor._origin(2) == "compiled here by /usr/bin/c++"


def test_all_kernels_are_made_for_all_levels(wheel, monkeypatch):
    commands = []
    monkeypatch.setattr(build, "compiler", lambda: ("c++",))
    monkeypatch.setattr(prebuilt.sys, "platform", "linux")
    monkeypatch.setattr(subprocess, "run", lambda words, **_: commands.append(words))
    left = wheel("good")
    prebuilt.make()
    assert not left.exists()
    assert len(commands) == len(prebuilt.KINDS) * len(prebuilt.ORDERS) * len(LEVELS)
    assert {"acoustic", "acoustic_3d", "elastic"} == set(prebuilt.KINDS)
    assert all(set(prebuilt.PORTABLE) <= set(words) and "-march=native" not in words for words in commands)
