"""deepwave's side of the seismic suite; runs in an environment of its own."""

from collections.abc import Callable

import numpy as np

from benchmarks.duel import serve
from benchmarks.seismic_scene import LAYER, Scene, scene, solid, watched


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed and what it says."""
    import torch

    torch.set_num_threads(1)
    given = scene(asked)
    elastic = asked.get("waves") == "elastic"
    traces = elastic_modelling(given) if elastic else modelling(given)
    names = solid(given.velocity) if elastic else {"velocity": given.velocity}
    models = [torch.tensor(values, requires_grad=asked["kind"] == "gradient") for values in names.values()]

    def forward():
        with torch.no_grad():
            return traces(*models)

    def gradient():
        for model in models:
            model.grad = None
        (traces(*models) ** 2).sum().backward()
        return torch.stack([model.grad for model in models]) if elastic else models[0].grad

    return watched(forward if asked["kind"] == "forward" else gradient, asked["folder"] + "/peer.npy")


def modelling(given: Scene) -> Callable:
    """Return velocity → traces (shots, receivers, nt), with the settings that make its scheme ours."""
    import torch
    from deepwave import scalar

    n = len(given.sources)
    geometry = {
        "source_amplitudes": -torch.tensor(given.wavelet).repeat(n, 1, 1),  # it subtracts them
        "source_locations": torch.tensor(given.sources)[:, None],
        "receiver_locations": torch.tensor(given.receivers).repeat(n, 1, 1),
    }
    scheme = {"accuracy": given.order, "pml_width": LAYER, "pml_freq": given.f_peak, "max_vel": given.v_max}
    return lambda velocity: scalar(velocity, given.dh, given.dt, **geometry, **scheme)[-1]


def elastic_modelling(given: Scene) -> Callable:
    """Return vp, vs, rho → traces of pressure (shots, receivers, nt), with the settings that make its scheme ours."""
    import torch
    from deepwave import elastic

    n = len(given.sources)
    between = (given.wavelet + np.roll(given.wavelet, -1)) / 2  # its sources of pressure act between samples
    geometry = {
        "source_amplitudes_pressure_rate": torch.tensor(between).repeat(n, 1, 1),
        "source_locations_pressure_rate": torch.tensor(given.sources)[:, None],
        "receiver_locations_p": torch.tensor(given.receivers).repeat(n, 1, 1),
    }
    scheme = {"accuracy": given.order, "pml_width": LAYER, "pml_freq": given.f_peak, "max_vel": given.v_max}

    def traces(vp, vs, rho):
        mu = rho * vs**2
        medium = rho * vp**2 - 2 * mu, mu, 1 / rho
        return elastic(*medium, given.dh, given.dt, **geometry, **scheme).receiver_amplitudes_p

    return traces


if __name__ == "__main__":
    serve(prepare)
