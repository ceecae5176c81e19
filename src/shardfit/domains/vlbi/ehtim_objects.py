"""Observations and images from and to eht-imaging's objects, told by their fields: it is never imported here."""

from typing import Any

import numpy as np

from shardfit.domains.vlbi.images import Image
from shardfit.domains.vlbi.observation import Observation, Stations, make_observation
from shardfit.domains.vlbi.stokes import from_circular

# their prefixes of columns, and the products here
LINEAR = {"": "I", "q": "Q", "u": "U", "v": "V"}
HANDS = {"rr": "RR", "ll": "LL", "rl": "RL", "lr": "LR"}
ROW = [("time", "f8"), ("tint", "f8"), ("t1", "U32"), ("t2", "U32"), ("tau1", "f8"), ("tau2", "f8"), ("u", "f8")]
COLUMNS = [*ROW, ("v", "f8"), *((f"{p}vis", "c16") for p in LINEAR), *((f"{p}sigma", "f8") for p in LINEAR)]
SITE = [("site", "U32"), *((name, "f8") for name in ("x", "y", "z", "sefdr", "sefdl"))]
SITE += [("dr", "c16"), ("dl", "c16"), *((name, "f8") for name in ("fr_par", "fr_elev", "fr_off"))]


def from_obsdata(obsdata: Any) -> Observation:
    """Return the observation of an `ehtim.Obsdata`. Samples without a positive error are missing.

    Example: `image(from_obsdata(ehtim.obsdata.load_uvfits("m87.uvfits")))`.
    """
    _require(obsdata, "from_obsdata", ("data", "tarr", "ra", "dec", "rf", "bw", "mjd"))
    table, sites = np.asarray(obsdata.data), np.asarray(obsdata.tarr)
    circular = "rrvis" in (table.dtype.names or ())
    known = HANDS if circular else LINEAR
    missing = [f"{p}vis" for p in known if f"{p}vis" not in (table.dtype.names or ())]
    if missing:
        raise ValueError(
            f"from_obsdata: the table has no column {missing[0]!r}. Give polrep 'stokes' or 'circ' "
            "(obs.switch_polrep('stokes'))."
        )
    vis = {name: table[f"{p}vis"] for p, name in known.items()}
    sigma = {name: table[f"{p}sigma"] for p, name in known.items()}
    good = {name: np.isfinite(vis[name]) & np.isfinite(sigma[name]) & (sigma[name] > 0) for name in vis}
    vis = {name: np.where(good[name], x, 0) for name, x in vis.items()}
    sigma = {name: np.where(good[name], x, np.inf) for name, x in sigma.items()}
    if circular:
        vis, sigma = from_circular(vis, sigma)
    used = np.isfinite(sigma["I"])
    names = tuple(str(name) for name in sites["site"])
    xyz = np.stack([sites[axis] for axis in "xyz"], 1)
    stations = Stations(names, xyz, np.sqrt(np.abs(sites["sefdr"] * sites["sefdl"])))
    pairs = {f"ant{k}": np.array([stations.index(str(name)) for name in table[f"t{k}"]])[used] for k in (1, 2)}
    scans = getattr(obsdata, "scans", None)
    return make_observation(
        **{name: np.asarray(table[name], float)[used] for name in ("time", "tint", "u", "v")},
        **pairs,
        vis={name: x[used] for name, x in vis.items()},
        sigma={name: x[used] for name, x in sigma.items()},
        stations=stations,
        freq_hz=float(obsdata.rf),
        bandwidth_hz=float(obsdata.bw),
        mjd=int(obsdata.mjd),
        source=str(getattr(obsdata, "source", "")),
        ra_hours=float(obsdata.ra),
        dec_deg=float(obsdata.dec),
        scans=None if scans is None or np.ndim(scans) != 2 else np.asarray(scans, float),
        polrep="circ" if circular else "stokes",
    )


def to_obsdata(obs: Observation, kind: Any) -> Any:
    """Return an observation as eht-imaging's object. kind: the class, `ehtim.obsdata.Obsdata`.

    Stokes parameters are handed over; those that are missing have a NaN error, as there.

    Example: `to_obsdata(obs, ehtim.obsdata.Obsdata).plotall("uvdist", "amp")`.
    """
    obs.require_one_frequency("to_obsdata")
    table = np.zeros(len(obs), COLUMNS)
    for name in ("time", "tint", "u", "v"):
        table[name] = getattr(obs, name)
    names = np.array(obs.stations.names)
    table["t1"], table["t2"] = names[obs.ant1], names[obs.ant2]
    for prefix, name in LINEAR.items():
        error = obs.sigma.get(name, np.full(len(obs), np.inf))
        table[f"{prefix}vis"] = obs.vis.get(name, 0)
        table[f"{prefix}sigma"] = np.where(np.isfinite(error), error, np.nan)
    sites = np.zeros(len(names), SITE)
    sites["site"] = names
    for k, axis in enumerate("xyz"):
        sites[axis] = obs.stations.xyz[:, k]
    sites["sefdr"] = sites["sefdl"] = obs.stations.sefd
    where = (obs.ra_hours, obs.dec_deg, obs.freq_hz, obs.bandwidth_hz)
    more = {"scantable": obs.scans, "polrep": "stokes", "source": obs.source, "mjd": obs.mjd}
    return kind(*where, table, sites, **more)


def from_ehtim_image(image: Any, *, pulse: str = "triangle") -> Image:
    """Return the image of an `ehtim.image.Image` with square pixels, all its Stokes planes."""
    _require(image, "from_ehtim_image", ("imarr", "psize", "ra", "dec", "rf", "mjd"))
    planes = {"I": np.asarray(image.imarr(pol="I"), float)}
    for name in "QUV":
        plane = image.imarr(pol=name)
        if np.size(plane):
            planes[name] = np.asarray(plane, float)
    about: dict[str, Any] = {"ra_hours": float(image.ra), "dec_deg": float(image.dec), "freq_hz": float(image.rf)}
    about |= {"mjd": int(image.mjd), "source": str(getattr(image, "source", ""))}
    return Image(planes, float(image.psize), pulse=pulse, **about)


def to_ehtim_image(image: Image, kind: Any) -> Any:
    """Return an image as eht-imaging's object. kind: the class, `ehtim.image.Image`. Planes Q and U go together."""
    made = kind(
        image.values["I"],
        image.pixel_rad,
        image.ra_hours,
        image.dec_deg,
        rf=image.freq_hz,
        source=image.source,
        mjd=image.mjd,
    )
    if {"Q", "U"} <= set(image.values):
        made.add_qu(image.values["Q"], image.values["U"])
    if "V" in image.values:
        made.add_v(image.values["V"])
    return made


def _require(given: Any, what: str, fields: tuple[str, ...]) -> None:
    missing = [name for name in fields if not hasattr(given, name)]
    if missing:
        raise TypeError(f"{what}: {type(given).__name__} has no {missing[0]!r}: this is not eht-imaging's object.")
