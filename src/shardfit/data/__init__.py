"""Public data sets, each a folder with its README (origin, licence, how made).

    from shardfit import data
    data.folder("m87")            # where it is installed
    data.get("m87", "here")       # a copy to work with: here/m87
    data.get("m87-days")          # downloaded, checked, kept in the user's cache

Small ones whose licence allows it come with the package; others are downloaded when asked for.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from shardfit.core.errors import suggestion
from shardfit.data.download import cache_folder, fetch

EHT = "https://github.com/eventhorizontelescope/2019-D01-01/raw/27ae76aacb9067a83388395c3826012b97aac371/uvfits/"


@dataclass(frozen=True)
class Dataset:
    """A data set: its name, what it is, and under which licence.

    sums: SHA-256 of each file, by its address, of one that is downloaded; empty for one that comes with the package.
    downloaded: bytes of these files.
    """

    name: str
    summary: str
    licence: str
    sums: Mapping[str, str] = field(default_factory=dict)
    downloaded: int = 0

    @property
    def shipped(self) -> bool:
        """Whether it comes with the package."""
        return not self.sums

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return self.downloaded or sum(path.stat().st_size for path in _place(self.name).iterdir())


def _place(name: str) -> Path:
    return Path(str(files(__name__) / name))


_NIGHTS = {  # day of the year 2017 and band
    "095_hi": "a11a874bdbf205089192b5270abc5894ad85e4ab54f0f677e3280c5639ea3e0d",
    "095_lo": "97492ee1146b05e12b1783e6c9a8253a0f50d789835286ffcc3ed5d248d51a8e",
    "096_hi": "5bc42247ccd01b58460d95e8c17f91e337c79ffe99a0718aacf0a91c77ad24ec",
    "096_lo": "f3394b2c272ba92980c21e3522987344f9175a78c333648a36458c917216c365",
    "100_hi": "76104537313cd6879c497901f313bad667f4608c48df961e67ac5615d84b2c00",
    "100_lo": "ee90ca5aec0bd8ed27f5ea13c941ae3f24c188d5c8a9aa87ab4b5606f57334be",
    "101_hi": "618c3019f60e88268980267a9db68f638b379a85842d83c06003d28550d191f5",
    "101_lo": "697af2bb3bbf732115108ffefacd3e59e307f38fe685c3c4579146b0bd661298",
}
DATASETS = (
    Dataset("m87", "M87 on 11 April 2017, low and high band (Event Horizon Telescope)", "public domain (PDDL 1.0)"),
    Dataset("nist_strd", "27 nonlinear regressions with certified answers (NIST)", "public domain"),
    Dataset("posteriordb", "six posteriors with reference draws (posteriordb)", "BSD 3-Clause"),
    Dataset("xpcs", "a measured two-time correlation (NSLS-II)", "BSD 3-Clause"),
    Dataset(
        "m87-days",
        "M87 on four days of April 2017, both bands (Event Horizon Telescope 2019-D01-01)",
        "public domain (PDDL 1.0)",
        {f"{EHT}SR1_M87_2017_{night}_hops_netcal_StokesI.uvfits": known for night, known in _NIGHTS.items()},
        4_495_680,
    ),
    Dataset(
        "marmousi",
        "the Marmousi velocity section, 12 km x 3 km (devitocodes/data)",
        "unclear: for your own use, not to be passed on",
        {
            "https://github.com/devitocodes/data/raw/master/Simple2D/vp_marmousi_bi": (
                "0f72aca4ffc47707d9e3e2970ccd3f604bc4e2e70a5497273a4d3786748f4c83"
            )
        },
        2_568_004,
    ),
)


def find(name: str) -> Dataset:
    """Return a data set by its name."""
    by_name = {dataset.name: dataset for dataset in DATASETS}
    if name not in by_name:
        raise ValueError(f"no data set {name!r}.{suggestion(name, by_name)}")
    return by_name[name]


def folder(name: str) -> Path:
    """Return the folder of a data set: where it is installed, or where it was downloaded to.

    Example: `data.folder("nist_strd") / "certified.json"`.
    """
    if find(name).shipped:
        return _place(name)
    place = cache_folder() / name
    if not place.is_dir():
        raise FileNotFoundError(f"data set {name!r} is not here yet: `shardfit data get {name}` downloads it.")
    return place


def get(name: str, to: str | Path | None = None) -> Path:
    """Return a folder with a data set, downloaded if need be, every file checked.

    to: copy it into this folder, as `to`/`name`; an existing one is never overwritten. None: one that comes with the
    package stays where it is, others go to the user's cache.
    """
    dataset = find(name)
    target = None if to is None else Path(to) / name
    if target is not None and target.exists():
        raise FileExistsError(f"{target} exists already. Remove it, or name another folder.")
    source = _place(name) if dataset.shipped else cache_folder() / name
    for address, known in dataset.sums.items():
        fetch(address, source / address.rpartition("/")[2], known)
    return source if target is None else Path(shutil.copytree(source, target))
