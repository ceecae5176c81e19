"""Options of XPCS: what is taken of a file, and how a model is fitted. Reading them does not load JAX."""

from collections.abc import Mapping
from dataclasses import dataclass

from shardfit.options.declared import Options, option

SCALINGS = ("auto", "individual", "fourier", "constant", "constant_averaged")
HELD = ("constant", "constant_averaged")  # scalings whose contrasts and offsets are not fitted
LOSSES = ("linear", "soft_l1", "huber", "cauchy", "arctan")
LEFT_OUT = {"constant": 2, "power": 1, "full": 0}  # parameters of a power law, from its last, that a law has at 0
DIAGONALS = ("basic", "interpolation", "median", "mean", "trimmed", "keep")
ERRORS = ("auto", "points", "frames", "speckle")
LIKELIHOODS = ("auto", "speckle", "points")


@dataclass(frozen=True)
class Selection(Options):
    """What is wanted of a file."""

    q: float | None = option(
        None,
        "wave vector\nthe nearest in the file is taken; it may be left out where there is one only",
        unit="1/Å",
        above=0,
        example=0.0054,
    )
    dt: float | None = option(
        None, "time between frames\nwhere the file does not say it", unit="s", above=0, example=0.1
    )
    gap: float | None = option(None, "gap of the shear cell", unit="Å", above=0, example=2e6)
    frames: tuple[int, int] = option((1, -1), "first and last frame, counted from 1; -1: to the end")
    q_tolerance: float = option(
        0.1,
        "of APS legacy files, which list a q for each bin: those within this fraction of the nearest are taken",
        least=0,
    )
    diagonal: str = option("basic", "what replaces the diagonal\nsee `corrected_diagonal`", choices=DIAGONALS)
    analysis: str | None = option(None, "of ESRF files, which may hold several analyses: which one", example="full")


@dataclass(frozen=True)
class FitOptions(Options):
    """How a model is fitted."""

    scaling: str = option(
        "auto",
        """contrast and offset
        'auto' is one of each for all angles, from `shared_from` angles on; see `scale_basis`""",
        choices=SCALINGS,
    )
    loss: str = option("linear", "loss of the residuals", choices=LOSSES)
    start: Mapping[str, float] = option(
        {},
        """where parameters begin; what is left out is found from the data
        a rate named here keeps its full law""",
        example={"D0": 1e4},
    )
    bounds: Mapping[str, tuple[float | None, float | None]] = option(
        {}, "between which values parameters stay", infinite=True, example={"D0": [100, 1e5]}
    )
    fixed: Mapping[str, float] = option({}, "parameters that are held", example={"D_offset": 0.0})
    triangle: str = option(
        "upper",
        """which pairs of frames count
        'upper' takes every pair once; 'both' counts it twice, as some packages do: errors are then too small by √2""",
        choices=("upper", "both"),
    )
    fourier_order: int = option(2, "order of scaling 'fourier'", least=0)
    shared_from: int = option(
        3, "number of angles from which scaling 'auto' has one contrast and offset for all", least=0
    )
    shear_weighted: bool = option(False, "give angles along the flow more weight\nχ² is then no longer one")
    warm_start: bool = option(
        False,
        """begin with contrast and offset held
        the model's parameters are fitted with scales from quantiles of the data, then all from there""",
    )
    even_scales: float = option(
        0.0,
        """strength of a penalty on contrasts and offsets that differ between angles
        λ·N·CV², CV being their standard deviation over their mean; they are then parameters of the search""",
        least=0,
    )
    likelihood: str = option(
        "auto",
        """what the data are taken for
        'speckle' weighs two-time maps as the sample covariances of intensities that they are; 'points' is least squares
        of points with noise σ. 'auto' takes the first for maps whose diagonal shows shot noise, or whose σ is not
        given, unless something is asked for that only points have: another loss, held scales, errors by points or
        frames""",
        choices=LIKELIHOODS,
    )
    errors: str = option(
        "auto",
        """standard errors of points, from the scatter of
        'points' takes all points as independent, as other packages do; 'frames' measures the scatter of whole frames,
        which points share; 'speckle' computes it for the sample covariance that a map is. 'auto': 'speckle' with the
        likelihood of that name, else 'points' in Python and 'frames' on the command line""",
        choices=ERRORS,
    )
    law: str = option(
        "auto",
        """law of rates
        'auto' compares a constant, a power law, and a power law with offset ('full') by BIC and takes the best. A rate
        whose parameters have a start or a held value, or whose exponent or offset has bounds, is taken as it is; so are
        all with a robust loss""",
        choices=("auto", *LEFT_OUT),
    )
    compat: str | None = option(
        None,
        """'grid' fits what the package homodyne fits to small data
        both triangles and the diagonal, no noise, scales of every angle, soft_l1 in place of 'linear'; another loss or
        scaling is refused""",
        choices=("grid",),
        example="grid",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.likelihood == "speckle" and (clash := self.of_points):
            raise ValueError(
                f"likelihood 'speckle' does not go with {clash}, which is of points. Leave one of them out."
            )
        for name, known in (("loss", ("linear", "soft_l1")), ("scaling", ("auto", "individual"))):
            if self.compat == "grid" and getattr(self, name) not in known:
                raise ValueError(
                    f"compat 'grid' minimises what the package homodyne does, with {name} {known[1]!r}, so that {name} "
                    f"{getattr(self, name)!r} would not be used. Leave one of the two out."
                )

    @property
    def of_points(self) -> str:
        """What was asked for that only single points have, in words; '' if nothing."""
        asked = {
            f"loss {self.loss!r}": self.loss != "linear",
            f"scaling {self.scaling!r}": self.scaling in HELD,
            f"triangle {self.triangle!r}": self.triangle != "upper",
            f"compat {self.compat!r}": self.compat is not None,
            f"errors {self.errors!r}": self.errors in ("points", "frames"),
            "shear_weighted": self.shear_weighted,
            "warm_start": self.warm_start,
            "even_scales": self.even_scales > 0,
        }
        return ", ".join(words for words, said in asked.items() if said)

    @property
    def joint(self) -> bool:
        """Whether scales stay parameters of the fit."""
        return self.loss != "linear" or self.scaling in HELD or self.even_scales > 0
