"""Interrupt one fit of a series from the keyboard."""

import shardfit.series


def interrupt(monkeypatch, number):
    """Stop the fit of this number, counted from 1 over all series, after its first step."""
    plain, count = shardfit.series.fit, iter(range(1, 1000))

    def fit(problem, solver=None, callback=None, **options):
        def stop(shot):
            if callback is not None:  # what a recipe notes at every step is noted
                callback(shot)
            raise KeyboardInterrupt

        here = next(count) == number
        return plain(problem, solver, callback=stop if here else callback, **options | ({"every": 1} if here else {}))

    monkeypatch.setattr(shardfit.series, "fit", fit)
