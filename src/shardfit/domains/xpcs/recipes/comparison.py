"""Which model the data want: fits of the same points compared by the Bayesian information criterion."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shardfit.domains.xpcs.recipes.answer import CorrelationFit

CLEAR = 10.0  # difference of BIC that decides; below 2 it says nothing


@dataclass(frozen=True)
class FitComparison:
    """Models by name, best first. parameters, chi2 and bic: (n,); difference: of BIC from the best."""

    names: tuple[str, ...]
    parameters: np.ndarray
    chi2: np.ndarray
    bic: np.ndarray

    @property
    def difference(self) -> np.ndarray:
        """BIC less that of the best model."""
        return self.bic - self.bic[0]

    def table(self) -> list[dict]:
        """Return the models as plain values, best first; bic: less that of the best."""
        rows = zip(self.names, self.parameters.tolist(), self.chi2.tolist(), self.difference.tolist(), strict=True)
        return [dict(zip(("law", "parameters", "chi2", "bic"), row, strict=True)) for row in rows]

    def __str__(self):
        rows = zip(self.names, self.parameters, self.chi2, self.difference, strict=True)
        lines = [f"  {name}: {k} parameters, χ² {c:.6g}, ΔBIC {d:.1f}" for name, k, c, d in rows]
        gap = self.difference[1]
        strength = "clearly" if gap > CLEAR else "weakly" if gap > 2 else "hardly"
        return "\n".join([f"the data {strength} prefer {self.names[0]}", *lines])


def compare_fits(fits: Mapping[str, CorrelationFit]) -> FitComparison:
    """Compare fits of different models to the same points: χ² in units of the noise plus parameters · ln points.

    The noise is that which the best of them leaves, so that a guessed σ decides nothing. With errors by points these
    count as independent; where speckle ties them together, differences are then too large. With errors by frames χ² and
    the number of points are divided by how much more the frames scatter than independent points would; by the
    likelihood of speckle the number is that of independent pixels.

    Example: `print(compare_fits({"still": fit_correlation(data, static()), "flow": fit_correlation(data, flow)}))`.
    """
    if len(fits) < 2:
        raise ValueError(f"compare_fits: {len(fits)} fits. Give two or more, by name of the model.")
    counts = {name: fit.setup.n_points for name, fit in fits.items()}
    if len({*counts.values()}) > 1 or any(fit.setup.options.loss != "linear" for fit in fits.values()):
        raise ValueError(f"compare_fits: fits must be of the same points ({counts}) with the loss 'linear'.")
    n = next(iter(counts.values()))
    chi2 = np.array([fit.chi2 for fit in fits.values()])
    # a parameter that ended at a bound was one all the same, though no degree of freedom is left to it
    k = np.array([n - fit.dof + sum(map(np.isnan, fit.stderr.values())) for fit in fits.values()])
    best = np.argmin(chi2 / (n - k))
    whole = list(fits.values())[best]
    tied = whole.scatter  # points that count as one
    alike = n / tied if whole.noise is None else whole.noise.pixels.sum() / whole.noise.sharing
    bic = chi2 / (tied * chi2[best] / (n - k[best])) + k * np.log(max(alike, np.e))
    order = np.argsort(bic, kind="stable")
    names = list(fits)
    return FitComparison(tuple(names[i] for i in order), k[order], chi2[order], bic[order])
