"""deepwave's side of the case `marmousi`, with torch's Adam; runs in an environment of its own."""

from collections.abc import Callable
from dataclasses import replace

from benchmarks.duel import serve
from benchmarks.seismic_deepwave import modelling
from benchmarks.seismic_marmousi import BOUNDS, EPSILON, RATE, batches, described, mask, start, truth


def prepare(asked: dict) -> tuple[Callable, Callable]:
    """Return the inversion and what it says."""
    import torch

    torch.set_num_threads(1)
    given = truth(asked)
    with torch.no_grad():
        observed = modelling(given)(torch.tensor(given.velocity))
    scale, free = float((observed**2).sum()), torch.tensor(mask(given.velocity))

    def loss(velocity, chosen):
        traces = modelling(replace(given, sources=given.sources[chosen]))(velocity)
        return ((traces - observed[chosen]) ** 2).sum() / scale

    def step(velocity, adam, chosen):
        adam.zero_grad()
        loss(velocity, chosen).backward()
        velocity.grad *= free
        adam.step()
        with torch.no_grad():
            velocity.clamp_(*BOUNDS)

    def begin():
        velocity = torch.tensor(start(given.velocity), requires_grad=True)
        return velocity, torch.optim.Adam([velocity], lr=RATE, eps=EPSILON)

    order = batches(asked)

    def invert():
        velocity, adam = begin()
        for chosen in order:
            step(velocity, adam, chosen)
        return velocity.detach().numpy()

    def whole(model):
        with torch.no_grad():
            return loss(torch.tensor(model), slice(None))

    step(*begin(), order[0])
    return described(invert, whole, given.velocity)


if __name__ == "__main__":
    serve(prepare)
