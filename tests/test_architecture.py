"""The architecture page names files and functions that exist, and every folder of the package."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "shardfit"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_hop_exists():
    hops = re.findall(r"`([a-z_]+/[a-z_/]+\.py|fitting\.py)`: ((?:`[A-Za-z_.]+`(?:, | or )?)+)", PAGE)
    assert len(hops) > 18
    for file, names in hops:
        source = (PACKAGE / file).read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Za-z_.]+)`", names):
            last = name.rpartition(".")[2]
            assert re.search(rf"^\s*(def|class) {last}\b", source, re.M), f"{file} has no {name}"


def test_every_folder_and_file_is_named():
    diagram = PAGE.split("```text")[1].split("```")[0]
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}
    assert {name for name in folders if f"{name}/" not in diagram} == set()
    for file in re.findall(r"`([a-z]+/[a-z_]+\.py)`", PAGE):
        assert (PACKAGE / file).exists() or (ROOT / file).exists(), file
