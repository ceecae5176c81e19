"""The canonical row order, what a table may hold, Stokes conversion."""

import numpy as np
import pytest

from shardfit.domains.vlbi.observation import Stations, make_observation
from shardfit.domains.vlbi.stokes import from_circular, to_circular

NAMES = ("Z", "B", "A", "unused")


def fields(n=3, **changes):
    rng = np.random.default_rng(0)
    given = {
        "time": np.full(n, 5.0),
        "tint": np.full(n, 10.0),
        "ant1": [0, 2, 1][:n],
        "ant2": [1, 0, 2][:n],
        "u": [1e9, 2e9, 3e9][:n],
        "v": [-1e9, 0.0, 1e9][:n],
        "vis": {"I": rng.normal(size=n) + 1j, "Q": rng.normal(size=n) + 2j},
        "sigma": {"I": np.full(n, 0.1), "Q": np.full(n, 0.2)},
        "stations": Stations(NAMES, np.zeros((4, 3)), np.zeros(4)),
        "freq_hz": 230e9,
        "bandwidth_hz": 2e9,
        "mjd": 57854,
    }
    return {**given, **changes}


def test_rows_are_oriented_and_sorted_by_name():
    given = fields()
    obs = make_observation(**given)
    assert obs.baseline_names == ("B-A", "Z-A", "Z-B")
    np.testing.assert_array_equal(obs.u, [3e9, -2e9, 1e9])
    np.testing.assert_array_equal(
        obs.vis["Q"], [given["vis"]["Q"][2], given["vis"]["Q"][1].conj(), given["vis"]["Q"][0]]
    )
    assert obs.nominal_resolution == pytest.approx(1 / np.hypot(3e9, 1e9))


def test_it_is_shown_in_one_line():
    shown = repr(make_observation(**fields(source="M87")))
    assert shown.startswith("Observation of M87: 3 visibilities, Stokes IQ, 230 GHz, MJD 57854, stations ")
    assert "\n" not in shown and "array" not in shown


def test_order_of_the_input_does_not_matter():
    obs, order = make_observation(**fields()), [2, 0, 1]
    given = fields()
    shuffled = {k: np.asarray(given[k])[order] for k in ("time", "tint", "ant1", "ant2", "u", "v")}
    for name in ("vis", "sigma"):
        shuffled[name] = {k: x[order] for k, x in given[name].items()}
    again = make_observation(**{**given, **shuffled})
    np.testing.assert_array_equal(obs.u, again.u)
    np.testing.assert_array_equal(obs.vis["I"], again.vis["I"])


def test_conjugate_pairs_become_one_row():
    given = fields()
    double = {k: np.r_[given[k], given[k]] for k in ("time", "tint", "ant1", "ant2", "u", "v")}
    double["ant1"][3:], double["ant2"][3:] = given["ant2"], given["ant1"]
    double["u"][3:] *= -1
    double["v"][3:] *= -1
    double["vis"] = {k: np.r_[x, x.conj()] for k, x in given["vis"].items()}
    double["sigma"] = {k: np.r_[x, x] for k, x in given["sigma"].items()}
    obs = make_observation(**{**given, **double})
    assert len(obs) == 3
    np.testing.assert_array_equal(obs.vis["I"], make_observation(**given).vis["I"])

    double["vis"]["I"][4] *= 1.01
    with pytest.raises(ValueError, match=r"rows 4 and 1 are both baseline Z-A at 5\.000000 h .*1 such"):
        make_observation(**{**given, **double})


def test_same_row_twice_is_refused():
    with pytest.raises(ValueError, match="rows 0 and 1 are both baseline Z-B"):
        make_observation(**fields(ant1=[0, 0, 1], ant2=[1, 1, 2]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"u": [np.nan, 1, 2]}, "u is not finite in 1 of 3 rows, first in row 0"),
        ({"ant1": [0, 2, 9]}, "station index outside"),
        ({"ant1": [1, 2, 1]}, "itself"),
        ({"time": [1.0, 2.0]}, "expected"),
        ({"sigma": {"I": np.array([0.1, 0.0, 0.1]), "Q": np.ones(3)}}, r"sigma\['I'\] is not finite"),
        ({"vis": {"RR": np.ones(3)}, "sigma": {"RR": np.ones(3)}}, "from_circular"),
        ({"vis": {"Q": np.ones(3)}, "sigma": {"Q": np.ones(3)}}, "need I"),
        ({"freq_hz": 0.0}, "freq_hz"),
        ({"polrep": "linear"}, "polrep"),
        ({"scans": [[3.0, 4.0], [1.0, 2.0]]}, "Sort the table"),
    ],
)
def test_refused(changes, why):
    with pytest.raises(ValueError, match=why):
        make_observation(**fields(**changes))


def test_missing_samples_never_are_nan():
    given = fields()
    given["vis"]["Q"][1] = np.nan
    given["sigma"]["U"], given["vis"]["U"] = np.full(3, np.nan), np.full(3, np.nan)
    obs = make_observation(**given)
    assert list(obs.vis) == ["I", "Q"]
    row = obs.baseline_names.index("Z-A")
    assert (obs.vis["Q"][row], obs.sigma["Q"][row]) == (0, np.inf)
    assert list(obs.select(np.arange(3) == row).vis) == ["I"]


def test_immutable():
    obs = make_observation(**fields())
    for change in (lambda: obs.u.__setitem__(0, 1.0), lambda: obs.vis["I"].__setitem__(0, 1.0)):
        with pytest.raises(ValueError, match="read-only"):
            change()
    with pytest.raises(TypeError):
        obs.vis["I"] = obs.vis["Q"]
    with pytest.raises(AttributeError):
        obs.u = obs.v


def test_select():
    obs = make_observation(**fields())
    assert obs.select(obs.u > 0).baseline_names == ("B-A", "Z-B")
    with pytest.raises(ValueError, match="at least one row"):
        obs.select(obs.u > 1e10)
    with pytest.raises(ValueError, match="mask"):
        obs.select([0, 1])


def test_stations():
    obs = make_observation(**fields())
    assert obs.drop_unused_stations().stations.names == ("Z", "B", "A")
    with pytest.raises(ValueError, match="left out"):
        obs.with_stations([0, 1])
    with pytest.raises(ValueError, match="no station 'AB'"):
        obs.stations.index("AB")
    with pytest.raises(ValueError, match="all different"):
        Stations(("A", "A"), np.zeros((2, 3)), np.zeros(2))
    loud = obs.replace(vis={"I": np.array([1.0, 9.0, 5.0])}, sigma={"I": np.ones(3)})  # B-A, Z-A, Z-B
    assert loud.order_by_snr().stations.names == ("Z", "A", "B", "unused")


def test_circular_and_back():
    rng = np.random.default_rng(1)
    vis = {name: rng.normal(size=4) + 1j * rng.normal(size=4) for name in "IQUV"}
    sigma = {"I": rng.uniform(0.1, 1, 4), "Q": rng.uniform(0.1, 1, 4)}
    sigma |= {"V": sigma["I"], "U": sigma["Q"]}
    hands, errors = to_circular(vis, sigma)
    np.testing.assert_allclose(hands["RL"], vis["Q"] + 1j * vis["U"])
    np.testing.assert_allclose(errors["LR"], np.sqrt(2) * sigma["Q"])
    again, again_sigma = from_circular(hands, errors)
    for name in "IQUV":
        np.testing.assert_allclose(again[name], vis[name])
        np.testing.assert_allclose(again_sigma[name], sigma[name])


def test_single_hand_and_removed_polarisation():
    rr, ll = np.array([1.0 + 1j, 2.0, 0.0]), np.array([3.0, 0.0, 4.0])
    sigma = {"RR": np.array([3.0, 0.5, np.inf]), "LL": np.array([4.0, np.inf, 0.25])}
    vis, error = from_circular({"RR": rr, "LL": ll}, sigma)
    np.testing.assert_allclose(vis["I"], [2 + 0.5j, 2, 4])
    np.testing.assert_allclose(error["I"], [2.5, 0.5, 0.25])
    np.testing.assert_allclose(error["V"], [2.5, np.inf, np.inf])
    assert list(vis) == ["I", "V"]
    same = {"RR": np.ones(3) * 2, "LL": np.ones(3) * 2}
    assert list(from_circular({"RR": rr, "LL": rr}, same)[0]) == ["I"]
    assert to_circular({"I": rr}, {"I": np.ones(3)})[1]["RR"] == pytest.approx(np.sqrt(2))
