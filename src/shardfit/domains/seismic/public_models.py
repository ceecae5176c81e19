"""Public models that are looked up, not shipped: read from a folder of yours, or downloaded when asked, and checked.

The Marmousi section here is a window of 12 km x 3 km. Its published form is one raw file; the folder may also hold
copies that were brought to (nz, nx) and m/s, on every 1st, 2nd or 4th sample.
"""

from pathlib import Path

import numpy as np

from shardfit.data import find
from shardfit.data.download import cache_folder, checked, fetch
from shardfit.domains.seismic.files import Model, load_model

((URL, SUM),) = find("marmousi").sums.items()
PUBLISHED = "vp_marmousi_bi"
SHAPE = (1601, 401)  # of the published file: (nx, nz) float32 in km/s
SUMS = {
    PUBLISHED: SUM,
    "marmousi_vp_7p5m.npz": "461b448d3e72a1409e97f2dddfa5e2858d1c971e56ac9a6debe9bde35899ecf4",
    "marmousi_vp_15m.npz": "74d3a471c120e8977dd0f65e23ce17d0d93d83bace42a48815d80f709b8340e8",
    "marmousi_vp_30m.npz": "be7d7e52a36ca5932815a1bc86389e9e908afa36525a1eb53d126f983e9ab7f5",
}
STEPS = {7.5: 1, 15.0: 2, 30.0: 4}  # spacing → every so many samples


def marmousi(spacing: float = 30.0, folder: str | Path | None = None, download: bool = False) -> Model:
    """Return the Marmousi section. spacing: 7.5, 15 or 30 m; folder: where the file is, by default SHARDFIT_DATA.

    download: fetch the published file (2.6 MB) into the folder where nothing is there. Without a folder it goes to the
    user's cache. Example: `marmousi(15.0, folder="data")`.
    """
    if spacing not in STEPS:
        raise ValueError(f"marmousi: spacing {spacing:g} m is not one of {', '.join(f'{s:g}' for s in STEPS)}.")
    home = Path(folder or cache_folder())
    copy = f"marmousi_vp_{f'{spacing:g}'.replace('.', 'p')}m.npz"
    for place in (home, home / "marmousi"):
        if (place / copy).is_file():
            return load_model(checked(place / copy, SUMS[copy]))
        if (place / PUBLISHED).is_file():
            return _published(place / PUBLISHED, spacing)
    if not download:
        raise FileNotFoundError(
            f"{home} holds no Marmousi model. Download {URL} into it, or let shardfit do so (download = true); another "
            "folder is named by SHARDFIT_DATA or --data."
        )
    return _published(fetch(URL, home / PUBLISHED, SUMS[PUBLISHED]), spacing)


def _published(path: Path, spacing: float) -> Model:
    step = STEPS[spacing]
    values = np.fromfile(checked(path, SUMS[PUBLISHED]), "<f4").reshape(SHAPE).T[::step, ::step]
    return Model(np.ascontiguousarray(1000 * values), (spacing, spacing))
