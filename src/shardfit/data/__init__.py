"""Small public data sets that come with the package, each a folder with its README (origin, licence, how made).

    from shardfit import data
    data.folder("m87")            # where it is installed
    data.copy("m87", "here")      # a copy to work with: here/m87

Only files whose licence allows it are here; larger or restricted ones are found through SHARDFIT_DATA.
"""

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from shardfit.core.errors import suggestion


@dataclass(frozen=True)
class Dataset:
    """A shipped data set: the name of its folder, what it is, and under which licence."""

    name: str
    summary: str
    licence: str

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(path.stat().st_size for path in folder(self.name).iterdir())


DATASETS = (
    Dataset("m87", "M87 on 11 April 2017, low and high band (Event Horizon Telescope)", "public domain (PDDL 1.0)"),
    Dataset("nist_strd", "27 nonlinear regressions with certified answers (NIST)", "public domain"),
    Dataset("posteriordb", "six posteriors with reference draws (posteriordb)", "BSD 3-Clause"),
    Dataset("xpcs", "a measured two-time correlation (NSLS-II)", "BSD 3-Clause"),
)


def folder(name: str) -> Path:
    """Return the installed folder of a data set. Example: `data.folder("nist_strd") / "certified.json"`."""
    names = [dataset.name for dataset in DATASETS]
    if name not in names:
        raise ValueError(f"no data set {name!r}.{suggestion(name, names)} Shipped are {', '.join(names)}.")
    return Path(str(files(__name__) / name))


def copy(name: str, to: str | Path = ".") -> Path:
    """Copy a data set into the folder `to`, as `to`/`name`, and return that; an existing one is never overwritten."""
    source, target = folder(name), Path(to) / name
    if target.exists():
        raise FileExistsError(f"{target} exists already. Remove it, or name another folder.")
    return shutil.copytree(source, target)
