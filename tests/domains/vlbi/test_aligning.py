"""Images onto other pixels and onto each other, and from and to eht-imaging's objects."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from shardfit.domains import vlbi
from shardfit.domains.vlbi.aligning import shift
from shardfit.domains.vlbi.constants import UAS
from shardfit.domains.vlbi.ehtim_objects import HANDS, ROW
from shardfit.domains.vlbi.stokes import to_circular


@pytest.fixture
def ring():
    return vlbi.known_image("crescent", 40)


def test_the_same_pixels_change_nothing(ring):
    same = vlbi.regrid(ring, 40, 40 * ring.pixel_rad)
    np.testing.assert_allclose(same.values["I"], ring.values["I"], atol=1e-15)


@pytest.mark.parametrize("npix", [20, 27, 64, 101])
def test_flux_and_centre_stay(ring, npix):
    """The source is away from the edge: other pixels leave its flux, centroid and shape."""
    moved = vlbi.regrid(ring, npix, 40 * ring.pixel_rad)
    assert moved.flux == pytest.approx(ring.flux, rel=2e-3)
    for one, axis in (("x", 0), ("y", 1)):
        centres = [i.values["I"].sum(axis) @ getattr(i, one) / i.flux for i in (ring, moved)]
        assert abs(centres[0] - centres[1]) < 0.1 * UAS
    u = v = 2e9 * np.ones(1)
    seen = [vlbi.images.visibilities(i.replace(pulse="delta"), u, v)["I"][0] for i in (ring, moved)]
    assert abs(seen[0] - seen[1]) < 0.03 * ring.flux


def test_a_wider_field_is_empty_outside(ring):
    wide = vlbi.regrid(ring, 80, 80 * ring.pixel_rad)
    np.testing.assert_allclose(wide.values["I"][20:60, 20:60], ring.values["I"], atol=1e-15)
    assert wide.flux == pytest.approx(ring.flux, rel=1e-12)
    narrow = vlbi.regrid(wide, 40, 40 * ring.pixel_rad)
    np.testing.assert_allclose(narrow.values["I"], ring.values["I"], atol=1e-15)


def test_images_are_moved_back(ring):
    for east, north in ((0.0, 0.0), (7.3, -4.1), (-12.0, 9.6)):
        away = shift(ring, east * UAS, north * UAS)
        assert away.values["I"].sum(0) @ away.x / away.flux == pytest.approx(
            ring.values["I"].sum(0) @ ring.x / ring.flux + east * UAS, abs=0.1 * UAS
        )
        back = vlbi.align([away], to=ring)[0]
        assert np.corrcoef(back.values["I"].ravel(), ring.values["I"].ravel())[0, 1] > 0.995
    with pytest.raises(ValueError, match="Use regrid first"):
        vlbi.align([ring, vlbi.regrid(ring, 20, 40 * ring.pixel_rad)])
    with pytest.raises(ValueError, match="positive whole number"):
        vlbi.regrid(ring, 0, 1.0)


@dataclass
class Obsdata:
    """What eht-imaging's class is given, in its order."""

    ra: float
    dec: float
    rf: float
    bw: float
    data: Any
    tarr: Any
    scantable: Any = None
    polrep: str = "stokes"
    source: str = ""
    mjd: int = 0
    scans: Any = field(default=None)


def test_observations_there_and_back():
    obs = vlbi.observe(vlbi.known_image("ring", 16), cadence_s=3600.0)
    made = vlbi.to_obsdata(obs, Obsdata)
    back = vlbi.from_obsdata(made)
    for name in ("time", "tint", "u", "v", "ant1", "ant2"):
        np.testing.assert_array_equal(getattr(back, name), getattr(obs, name))
    for name in obs.vis:
        np.testing.assert_array_equal(back.vis[name], obs.vis[name])
        np.testing.assert_array_equal(back.sigma[name], obs.sigma[name])
    assert back.stations.names == obs.stations.names and back.mjd == obs.mjd
    np.testing.assert_allclose(back.stations.sefd, obs.stations.sefd)

    vis, sigma = to_circular(obs.vis, obs.sigma)
    kinds = [*ROW, ("v", "f8"), *((f"{p}vis", "c16") for p in HANDS), *((f"{p}sigma", "f8") for p in HANDS)]
    table = np.zeros(len(obs), kinds)
    for name in ("time", "tint", "t1", "t2", "u", "v"):
        table[name] = made.data[name]
    for prefix, name in HANDS.items():
        table[f"{prefix}vis"], table[f"{prefix}sigma"] = vis.get(name, 0), sigma.get(name, np.nan)
    hands = vlbi.from_obsdata(Obsdata(made.ra, made.dec, made.rf, made.bw, table, made.tarr, polrep="circ"))
    np.testing.assert_allclose(hands.vis["I"], obs.vis["I"])
    with pytest.raises(TypeError, match="not eht-imaging's object"):
        vlbi.from_obsdata(np.zeros(3))
    with pytest.raises(ValueError, match="no column 'vis'"):
        vlbi.from_obsdata(Obsdata(0, 0, 1, 1, np.zeros(2, ROW), made.tarr))
