"""Gains as text files: there and back, files as eht-imaging writes them, refusals."""

import numpy as np
import pytest

from shardfit.domains.vlbi import apply_gains, read_gains, solve_gains, write_gains
from shardfit.domains.vlbi.recipes import known_image, observe


@pytest.fixture(scope="module")
def solved():
    truth = known_image("ring", 32)
    obs = observe(truth, gains=0.1, random_phase=True, seed=2).replace(source="RING")
    return obs, solve_gains(obs, truth, interval="scan")


def test_there_and_back(solved, tmp_path):
    obs, gains = solved
    files = write_gains(gains, tmp_path, obs)
    assert {file.name for file in files} == {f"RING_{name}.txt" for name in obs.drop_unused_stations().stations.names}
    once, again = apply_gains(obs, gains), apply_gains(obs, read_gains(tmp_path, obs), nearest=True)
    np.testing.assert_allclose(again.vis["I"], once.vis["I"], rtol=1e-12)
    np.testing.assert_allclose(again.sigma["I"], once.sigma["I"], rtol=1e-12)


def test_factors_multiply_data(solved, tmp_path):
    """As eht-imaging applies them: V times the first station's factor and the conjugate of the second's."""
    obs, _ = solved
    one, other = obs.stations.names[0], obs.stations.names[1]
    (tmp_path / f"RING_{one}.txt").write_text(f"{obs.mjd + 0.5} 2.0 1.0 2.0 1.0\n")
    (tmp_path / f"RING_{other}.txt").write_text(f"{obs.mjd + 0.25} 3.0 3.0\n{obs.mjd + 0.75} 3.0 3.0\n")
    gained = apply_gains(obs, read_gains(tmp_path, obs), nearest=True)
    factor = np.ones(len(obs.stations), complex)
    factor[:2] = 2 + 1j, 3
    expected = obs.vis["I"] * factor[obs.ant1] * factor[obs.ant2].conj()
    np.testing.assert_allclose(gained.vis["I"], expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no gains"),
        ("57854.1 1 0 1\n", "line 1: not an MJD and the factors"),
        ("57854.1 1 0 1 0\n57854.2 one 0 1 0\n", "line 2: not an MJD"),
        ("57854.1 1 0 1.1 0\n", "line 1: both hands must have the same factor"),
        ("57854.1 0 0 0 0\n", "not zero"),
        ("57854.1 1 1\n57854.1 1 1\n", "a time appears twice"),
    ],
)
def test_files_that_cannot_be_used(solved, tmp_path, text, words):
    obs, _ = solved
    (tmp_path / f"RING_{obs.stations.names[0]}.txt").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_gains(tmp_path, obs)


def test_a_folder_without_gains(solved, tmp_path):
    obs, _ = solved
    with pytest.raises(FileNotFoundError, match=f"no gains of this observation, such as RING_{obs.stations.names[0]}"):
        read_gains(tmp_path, obs)
