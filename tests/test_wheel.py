"""What is packed: the wheel holds every file of the package, the source archive every file that builds and tests it."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from configparser import ConfigParser
from email import message_from_string
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
KERNELS = "shardfit/domains/seismic/prebuilt/"
# of a checkout, and of no use outside of it
ONLY_GIT = (".ci", ".github", ".gitignore", ".pre-commit-config.yaml")


def build(folder: Path, out: Path, *targets: str) -> list[Path]:
    """Build as pip does, without its environment of its own."""
    words = [word for target in targets for word in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out), *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return sorted(out.iterdir())


def packed(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of the package in a folder of sources but what Python leaves there and `make wheel` compiles."""
    found = {path.relative_to(folder / "src").as_posix(): path for path in folder.glob("src/shardfit/**/*")}
    return {
        name: path.read_bytes()
        for name, path in found.items()
        if path.is_file() and "__pycache__" not in name and not name.startswith(KERNELS)
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    sdist, wheel = sorted(build(ROOT, tmp_path_factory.mktemp("dist"), "wheel", "sdist"), key=lambda path: path.suffix)
    return wheel, sdist


@pytest.fixture(scope="module")
def sources(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built[1]) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.iterdir())


def test_the_wheel_holds_every_file_of_the_package(built):
    inside = {name: content for name, content in packed(built[0]).items() if name.startswith("shardfit/")}
    expected = files_of(ROOT)
    assert sorted(name for name in inside if not name.startswith(KERNELS)) == sorted(expected)
    assert all(inside[name] == content for name, content in expected.items())
    suffixes = {Path(name).suffix for name in inside}
    assert {".py", ".typed", ".css", ".js", ".html", ".cpp", ".h", ".uvfits", ".npz", ".json", ".dat"} <= suffixes


def test_what_the_wheel_says_of_itself(built):
    inside = packed(built[0])
    about = f"shardfit-{PROJECT['version']}.dist-info"
    metadata = message_from_string(inside[f"{about}/METADATA"].decode())
    assert metadata["Version"] == PROJECT["version"] and metadata["Requires-Python"] == PROJECT["requires-python"]
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    licences = {name for name in inside if name.startswith(f"{about}/licenses/")}
    assert {Path(name).parent.name for name in licences} == {"licenses", "posteriordb", "xpcs"}
    scripts = ConfigParser()
    scripts.read_string(inside[f"{about}/entry_points.txt"].decode())
    assert dict(scripts["console_scripts"]) == PROJECT["scripts"]
    assert dict(scripts["shardfit.sciences"]) == PROJECT["entry-points"]["shardfit.sciences"]


def test_the_source_archive_holds_every_file_of_git(sources):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a checkout")
    kept = [name for name in listed.stdout.split("\0") if name and name.partition("/")[0] not in ONLY_GIT]
    assert [name for name in kept if (ROOT / name).is_file() and not (sources / name).is_file()] == []


def test_the_wheel_of_the_source_archive_is_the_same(built, sources, tmp_path):
    (wheel,) = build(sources, tmp_path / "dist", "wheel")
    own = {name: content for name, content in packed(built[0]).items() if not name.startswith(KERNELS)}
    again = packed(wheel)
    changed = {name for name in own if name.endswith(("/RECORD", "/WHEEL"))}  # they differ where kernels are packed
    assert sorted(own) == sorted(again)
    assert {name for name in own if own[name] != again[name]} <= changed


@pytest.mark.slow
def test_compiled_kernels_make_a_wheel_for_one_kind_of_machine(tmp_path):
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".gitignore").write_text("src/shardfit/domains/seismic/prebuilt/\n")  # as that of a checkout
    folder = tmp_path / "src" / KERNELS
    folder.mkdir(parents=True)
    (tmp_path / "src" / "shardfit" / "__init__.py").touch()
    (folder / "acoustic-4-any-0.so").write_bytes(b"kernel")
    (wheel,) = build(tmp_path, tmp_path / "dist", "wheel")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    inside = packed(wheel)
    assert inside[f"{KERNELS}acoustic-4-any-0.so"] == b"kernel"
    (said,) = (content for name, content in inside.items() if name.endswith(".dist-info/WHEEL"))
    assert b"Root-Is-Purelib: false" in said
