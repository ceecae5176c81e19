"""deepwave's side of the seismic suite; runs in an environment of its own."""

from collections.abc import Callable

from benchmarks.duel import serve
from benchmarks.seismic_scene import LAYER, Scene, scene, watched


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return what is timed and what it says."""
    import torch

    torch.set_num_threads(1)
    given = scene(asked)
    traces = modelling(given)
    velocity = torch.tensor(given.velocity, requires_grad=asked["kind"] == "gradient")

    def forward():
        with torch.no_grad():
            return traces(velocity)

    def gradient():
        velocity.grad = None
        (traces(velocity) ** 2).sum().backward()
        return velocity.grad

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


if __name__ == "__main__":
    serve(prepare)
