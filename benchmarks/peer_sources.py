"""A peer compiled from its source distribution, for this processor, as our own kernel is."""

import os
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

FLAGS = {"CFLAGS": "-march=native", "CMAKE_ARGS": "-DDW_SKIP_CUDA=ON"}
NEEDED = {"NDIMS": "2 3", "ACCURACIES": "4 8", "DTYPES": "float"}
HOW = "compiled here by its own release flags and -march=native"


def install(pip: list, requirement: str) -> None:
    """Compile deepwave's scalar and elastic kernels of two and three dimensions, orders 4 and 8, float32.

    The others would take hours on a small machine; the package leaves out by itself what its library lacks.
    """
    with tempfile.TemporaryDirectory() as folder:
        fetch = ["download", "--no-deps", "--no-binary", ":all:", "-d", folder, requirement]
        subprocess.run([*pip[:-1], *fetch], check=True, stdout=subprocess.DEVNULL, env={**os.environ, **FLAGS})
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as stored:
            stored.extractall(folder, filter="data")
        source = Path(folder) / archive.name.removesuffix(".tar.gz")
        rules = source / "CMakeLists.txt"
        rules.write_text(_needed(rules.read_text()))
        subprocess.run([*pip, "--no-deps", "--no-cache-dir", str(source)], check=True, env={**os.environ, **FLAGS})


def _needed(rules: str) -> str:
    for name, values in NEEDED.items():
        rules, n = re.subn(rf"^set\({name} .*\)$", f"set({name} {values})", rules, flags=re.MULTILINE)
        if n != 1:
            raise RuntimeError(
                f"deepwave's CMakeLists.txt has {n} lines set({name} ...), not 1: has its version changed?"
            )
    needed = r"object_library\((?:scalar|elastic|storage_utils|simple_compress) "
    others = rf"^\s*add_deepwave_cpu_(?!{needed})\w*object_library\([a-z]\w* .*\)\n"
    return re.sub(others, "", rules, flags=re.MULTILINE)
