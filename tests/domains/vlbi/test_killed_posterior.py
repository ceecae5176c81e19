"""Images whose search was killed at random instants are those of a search that nothing happened to, to the bit."""

import os
import subprocess
import sys

import numpy as np
import pytest

from shardfit import CheckpointError
from shardfit.check.identity import Identity
from shardfit.core.precision import arithmetic
from shardfit.domains.vlbi import posterior
from shardfit.io.files import read_arrays
from shardfit.io.run_dir import RunDir
from shardfit.sampling.refits.kept_modes import kept_modes
from shardfit.sampling.refits.latent import draw_refits, modes
from tests.domains.vlbi.test_image_posterior import PIXELS, data
from tests.sampling.test_latent import K, N, bent_field, example


@pytest.mark.slow
@pytest.mark.processes
def test_same_images(tmp_path):
    command = [sys.executable, "-m", "tests.domains.vlbi.killed_posterior", str(tmp_path), "8", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, env=os.environ)
    assert not done.returncode, done.stderr
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 4
    whole, killed = (read_arrays(tmp_path / name / "images.npz") for name in ("whole", "killed"))
    for name, array in whole.items():
        np.testing.assert_array_equal(killed[name], array)
    assert read_arrays(tmp_path / "killed" / "ckpt" / "modes-draws-12.npz")["reached"].all()


class Stop(Exception):
    """Ends a search in its middle."""


@arithmetic("float64")
def test_a_round_goes_on_where_it_was_kept(tmp_path, monkeypatch):
    """Stopped after every write in turn, refits end with the same bits, and nothing that has ended is fitted again."""
    model, h, y0 = example(bent_field), np.linspace(-1, 1, 20)[:, None], np.zeros((20, N))
    whole = draw_refits(model, h, y0, 7)
    run, stops = Identity({"search": "example"}), 0
    while True:
        with kept_modes(RunDir(tmp_path, seconds=0.0), run, "auto") as kept:
            keep = kept.next_round()

            class Stopping:
                read = staticmethod(keep.read)

                @staticmethod
                def write(found, *, ended, keep=keep):
                    keep.write(found, ended=ended)
                    if not ended:
                        raise Stop

            try:
                found = draw_refits(model, h, y0, 7, Stopping)
                break
            except Stop:
                stops += 1
    assert stops >= 2
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr("shardfit.sampling.refits.latent._advance", None)  # nothing is left to compute
    with kept_modes(tmp_path, run, "must") as kept:
        again = modes(model, h, y0, np.zeros((20, K)), y0, keep=kept.next_round())
    np.testing.assert_array_equal(again.y, whole.y)


def test_another_search_and_none_are_refused(tmp_path):
    obs, _ = data()
    with pytest.raises(CheckpointError, match="holds no run to resume"):
        posterior(obs, **PIXELS, flux=0.5, products="vis", run_dir=tmp_path, resume="must")
    with kept_modes(tmp_path, Identity({"seed": "1"}), "auto"):
        pass
    with pytest.raises(CheckpointError, match="belongs to another fit: .*seed"):
        posterior(obs, **PIXELS, flux=0.5, products="vis", run_dir=tmp_path)
