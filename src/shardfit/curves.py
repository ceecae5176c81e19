"""curve_fit: one call from a function and arrays to parameters with error bars, in the words of scipy's."""

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from shardfit.core.errors import NotConvergedError
from shardfit.core.objective import Objective
from shardfit.core.problem import Problem
from shardfit.core.result import Result
from shardfit.core.term_makers import residual_term
from shardfit.fitting import fit

WHERE = "curve_fit"
LINEAR, EPS = 1e-9, 1e-5  # curvature beside a column that is none; rounding of residuals beside that
OTHER_NAMES = {  # of scipy's, and what to say here
    "method": "the method is Levenberg–Marquardt, with and without bounds; leave it out",
    "jac": "derivatives come from JAX; leave it out",
    "maxfev": "use maxiter=",
    "max_nfev": "use maxiter=",
    "nan_policy": "choose the rows yourself: keep = np.isfinite(ydata)",
    "check_finite": "numbers are always checked; leave it out",
    "full_output": "everything is in .result; leave it out",
    "x_data": "the argument is xdata",
    "y_data": "the argument is ydata",
}


@dataclass(frozen=True, eq=False, repr=False)
class CurveFit:
    """Parameters of a curve and their errors, in the order of the function's; `popt, pcov = curve_fit(...)` unpacks it.

    popt: (p,) parameters; pcov: (p, p) their covariance; perr: (p,) standard errors. inf where the data do not
    determine a parameter; on the diagonal NaN at a bound, where there is no plus and minus, and 0 for what is fixed.
    result: all that `fit` returns, with parameters by name.
    """

    names: tuple[str, ...]
    popt: np.ndarray
    pcov: np.ndarray
    perr: np.ndarray
    result: Result

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.popt, self.pcov))

    def __str__(self):
        return str(self.result)

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return self.result._repr_html_()


def curve_fit(
    f: Callable,
    xdata: Any,
    ydata: Any,
    p0: Any = None,
    sigma: Any = None,
    absolute_sigma: bool = False,
    *,
    bounds: Any = None,
    names: Sequence[str] | None = None,
    fixed: Any = None,
    tied: Any = None,
    units: Any = None,
    mesh: Any = None,
    certify: bool = True,
    **options: Any,
) -> CurveFit:
    """Fit the parameters of a curve y = f(x, a, b, ...) by least squares; return them with covariance and errors.

    Parameters
    ----------
    f
        written with jax.numpy; takes x and one number for each parameter. It sees some of the points at a time, so each
        value may depend on its own x only.
    xdata
        (n,), (k, n) or a tuple of k arrays for k variables, or a dict of arrays with n entries each; f gets it in the
        same form, with fewer points.
    ydata
        (n,) measured values.
    p0
        start, in the order of f's parameters or by name; None: 1, or inside the bounds.
    sigma
        standard deviation of ydata: a number or (n,), or a covariance matrix (n, n); None: unknown, equal for all.
    absolute_sigma
        True: errors of the parameters are those that sigma gives; False: only the ratios of sigma count, and errors
        are scaled so that χ² per degree of freedom is 1.
    bounds
        (lower, upper), each a number or one for each parameter, or by name {"tau": (0, None)}.
    names
        of the parameters; None: those in f's signature.
    fixed, tied, units
        by name, as for `Problem`.
    mesh, certify, options
        as for `fit` with `lm`: maxiter, ftol, gtol, xtol, ...

    Raises RuntimeError, whose attribute `result` has what was reached, where no tolerance was met; warns of what else
    speaks against an answer, or leaves it without errors.

    Example: `popt, pcov = curve_fit(lambda x, a, b: a * jnp.exp(-b * x), x, y, bounds=(0, 5))`.

    """
    for name in options:
        if name in OTHER_NAMES:
            raise TypeError(f"{WHERE}: {name}={options[name]!r} is scipy's: {OTHER_NAMES[name]}.")
    y = _values("ydata", ydata)
    if y.ndim != 1 or not y.size:
        raise ValueError(f"{WHERE}: ydata has shape {y.shape}; give one number per point, (n,). Ravel it, and x alike.")
    names = _names(f, p0, names)
    ends = _by_name(bounds, names)
    x0 = _start(p0, names, ends)
    objective = Objective({"curve": _term(f, *_points(xdata, y.size), y, _deviations(sigma, y.size))})
    problem = Problem(
        objective, x0, bounds=ends, fixed=fixed, tied=tied, units=units, name=getattr(f, "__name__", "curve")
    )
    free = problem.space.size
    if y.size < free:
        raise ValueError(f"{WHERE}: {y.size} points cannot determine {free} parameters. Fix some of these: fixed=.")
    go = partial(fit, solver="lm", mesh=mesh, certify=certify, absolute_sigma=absolute_sigma, progress=False, **options)
    result = go(problem)
    if p0 is None and fixed is None and tied is None and not result.status.converged:
        result = _from_linear_start(go, problem, x0, ends, result)
    return _told(names, result)


def _from_linear_start(go: Callable, problem: Problem, x0: Mapping[str, float], ends: Any, first: Result) -> Result:
    """Return a fit from where the curve is nearest in what it is linear in, or the first one where that is no answer.

    Values of thousands are far from a start of 1, but the nearest amplitudes and offsets follow from the others.
    """
    start, linear = _linear_start(problem.objective, x0)
    for name, (low, high) in (ends or {}).items():
        start[name] = float(np.clip(start[name], -np.inf if low is None else low, np.inf if high is None else high))
    if not linear or not np.isfinite([*start.values()]).all():
        return first
    found = go(problem.replace(x0=start))
    if not found.status.converged:
        return first
    told = f"From the usual start the fit did not converge; it began anew from the best {', '.join(linear)} there."
    return replace(found, note=" ".join(filter(None, (found.note, told))))


def _linear_start(objective: Objective, x0: Mapping[str, float]) -> tuple[OrderedDict[str, float], list[str]]:
    """Return x0 with the best values of parameters in which the residuals are linear, and which these are."""

    def moved(**by: float) -> np.ndarray:
        return np.asarray(objective.residuals(OrderedDict((name, x + by.get(name, 0)) for name, x in x0.items())))

    base, columns = moved(), {}
    for name in x0:
        column = moved(**{name: 1.0}) - base
        bends = [moved(**{name: 2.0}) - base - 2 * column]
        bends += [moved(**{name: 1.0, other: 1.0}) - base - column - known for other, known in columns.items()]
        if all(np.max(np.abs(bend)) <= LINEAR * np.max(np.abs(column) + np.abs(base) * EPS) for bend in bends):
            columns[name] = column
    if not columns or not np.isfinite([base, *columns.values()]).all():
        return OrderedDict(x0), []
    by = np.linalg.lstsq(np.stack([*columns.values()], axis=1), -base)[0]
    return OrderedDict(x0) | {name: x0[name] + float(step) for name, step in zip(columns, by, strict=True)}, [*columns]


def _told(names: tuple[str, ...], result: Result) -> CurveFit:
    """Return the answer in scipy's form; raise where there is none, warn of what speaks against it."""
    if not result.status.converged:
        raise NotConvergedError(f"{WHERE}: {result.message}", result)
    p = len(names)
    popt = np.array([float(value) for value in result.params.values()])
    if result.covariance is None:
        pcov, perr = np.full((p, p), np.inf), np.full(p, np.inf)
    else:
        pcov, perr = result.covariance.copy(), np.array([float(error) for error in result.stderr.values()])
        np.fill_diagonal(pcov, np.where(np.isnan(perr), np.nan, np.diag(pcov)))
    if not (result.success and np.isfinite(np.diag(pcov)[~np.isnan(perr)]).all()):
        warnings.warn(f"{WHERE}: {result.message}", UserWarning, stacklevel=3)
    return CurveFit(names, popt, pcov, perr, result)


def _values(what: str, given: Any) -> np.ndarray:
    """Return an array of finite real numbers, or raise."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.is_masked(given):
        raise ValueError(f"{WHERE}: {what} is masked. Leave those points out, of x, y and sigma: keep = ~ydata.mask.")
    try:
        array = np.asarray(given)
    except ValueError:
        array = np.empty(0, object)
    if not np.issubdtype(array.dtype, np.number) and array.dtype != bool:
        raise TypeError(f"{WHERE}: {what} is no array of numbers (or its parts have different lengths).")
    if np.iscomplexobj(array):
        raise TypeError(f"{WHERE}: {what} is complex. Fit real and imaginary parts as points of their own.")
    array = array.astype(np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = ", ".join(map(str, bad[0]))
        raise ValueError(
            f"{WHERE}: {what} has {len(bad)} of {array.size} numbers that are NaN or infinite, the first at [{at}]. "
            "Leave those points out: keep = np.isfinite(ydata)."
        )
    return array


def _names(f: Callable, p0: Any, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of f's parameters: those given, those of its signature, or p0, p1, ... for `*args`."""
    own = _of_signature(f)
    found = (own or _numbered(p0)) if names is None else tuple(names)
    if not found or len(set(found)) < len(found) or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f"{WHERE}: the parameters are {found}; give each a name of its own.")
    if own is not None and len(own) != len(found):
        raise ValueError(f"{WHERE}: {len(found)} names for f's {len(own)} parameters ({', '.join(own)}).")
    return found


def _numbered(p0: Any) -> tuple[str, ...]:
    """Return the names in a start, p0, p1, ... for one without."""
    if p0 is None:
        raise ValueError(f"{WHERE}: f does not say how many parameters it has. Give names= or p0=.")
    return tuple(p0) if isinstance(p0, Mapping) else tuple(f"p{i}" for i in range(np.size(p0)))


def _of_signature(f: Callable) -> tuple[str, ...] | None:
    """Return the names after the first argument; None where f takes any number, or does not tell."""
    try:
        given = [*inspect.signature(f).parameters.values()]
    except (TypeError, ValueError):
        return None
    placed = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if any(one.kind is one.VAR_POSITIONAL for one in given) or not placed:
        return None
    return tuple(one.name for one in placed[1:])


def _by_name(bounds: Any, names: tuple[str, ...]) -> dict[str, tuple] | None:
    """Return a pair of ends for each parameter, from scipy's two sequences, its Bounds, or a dict."""
    if bounds is None:
        return None
    if isinstance(bounds, Mapping):
        _require_known("bounds", bounds, names)
        pairs = {name: (None, None) if bounds.get(name) is None else bounds[name] for name in names}
        for name, pair in pairs.items():
            if not hasattr(pair, "__len__") or len(pair) != 2:
                raise ValueError(f"{WHERE}: bounds of {name!r} are {pair!r}; give (lower, upper), None for no bound.")
        return {name: tuple(pair) for name, pair in pairs.items()}
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        bounds = bounds.lb, bounds.ub
    if len(bounds) != 2:
        raise ValueError(f"{WHERE}: bounds has {len(bounds)} entries. Give (lower, upper), or a dict by name.")
    try:
        lower, upper = (np.broadcast_to(np.asarray(end, float), len(names)) for end in bounds)
    except ValueError:
        raise ValueError(
            f"{WHERE}: bounds=(lower, upper) takes a number or {len(names)} numbers each, for {', '.join(names)}. "
            "By name: bounds={'tau': (0, None)}."
        ) from None
    return {name: (float(lo), float(hi)) for name, lo, hi in zip(names, lower, upper, strict=True)}


def _start(p0: Any, names: tuple[str, ...], ends: dict[str, tuple] | None) -> OrderedDict[str, float]:
    """Return the start by name, in the order of f's parameters, which is that of the covariance."""
    usual = {name: _inside(*(ends[name] if ends else (None, None))) for name in names}
    if isinstance(p0, Mapping):
        _require_known("p0", p0, names)
        chosen = [p0.get(name, usual[name]) for name in names]
    else:
        chosen = [*usual.values()] if p0 is None else p0
    start = np.atleast_1d(_values("p0", chosen))
    if start.shape != (len(names),):
        raise ValueError(f"{WHERE}: p0 has shape {start.shape} for {len(names)} parameters ({', '.join(names)}).")
    return OrderedDict(zip(names, map(float, start), strict=True))


def _require_known(what: str, given: Mapping, names: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"{WHERE}: {what} names {unknown[0]!r}, but the parameters are {', '.join(names)}.")


def _inside(low: Any, high: Any) -> float:
    """Return where a parameter starts whose start is not given: 1 if free, else within its bounds, as scipy does."""
    low, high = -np.inf if low is None else float(low), np.inf if high is None else float(high)
    if np.isfinite(low) and np.isfinite(high):
        return (low + high) / 2
    if np.isfinite(low):
        return low + 1
    return high - 1 if np.isfinite(high) else 1.0


def _points(xdata: Any, n: int) -> tuple[Any, bool]:
    """Return x with points first, and whether f wants the variables first: (k, n)."""
    if isinstance(xdata, Mapping):
        x = {name: _values(f"xdata[{name!r}]", column) for name, column in xdata.items()}
        shapes = {name: column.shape for name, column in x.items()}
        if not x or any(not shape or shape[0] != n for shape in shapes.values()):
            raise ValueError(
                f"{WHERE}: xdata has shapes {shapes} for {n} points; every entry needs one line per point."
            )
        return x, False
    x = _values("xdata", xdata)
    first, last = bool(x.ndim) and x.shape[0] == n, x.ndim > 1 and x.shape[-1] == n
    if first and last:
        if isinstance(xdata, tuple | list):  # of variables, each an array of its own
            return np.moveaxis(x, -1, 0), True
        raise ValueError(
            f"{WHERE}: xdata of shape {x.shape} for {n} points may be read in two ways. Give its variables as a tuple "
            "of arrays, or as a dict."
        )
    if not (first or last):
        raise ValueError(f"{WHERE}: xdata has shape {x.shape} for {n} points. Give (n,), (k, n), or a dict of (n,).")
    return (np.moveaxis(x, -1, 0), True) if last else (x, False)


def _deviations(sigma: Any, n: int) -> np.ndarray | None:
    """Return standard deviations (n,), or the Cholesky factor (n, n) of a covariance matrix; None for none."""
    if sigma is None:
        return None
    s = _values("sigma", sigma)
    if s.shape not in ((), (1,), (n,), (n, n)):
        raise ValueError(
            f"{WHERE}: sigma has shape {s.shape} for {n} points. Give standard deviations (n,), or a covariance (n, n)."
        )
    if s.ndim < 2:
        if not (s > 0).all():
            raise ValueError(f"{WHERE}: sigma must be positive; {int(np.sum(s <= 0))} of {s.size} are not.")
        return np.broadcast_to(s, n).copy()
    if not np.allclose(s, s.T, rtol=1e-10, atol=0):
        raise ValueError(f"{WHERE}: sigma is a matrix but not symmetric, so no covariance.")
    try:
        return np.linalg.cholesky(s)
    except np.linalg.LinAlgError:
        raise ValueError(f"{WHERE}: sigma is a matrix but not positive definite, so no covariance.") from None


def _term(f: Callable, x: Any, turned: bool, y: np.ndarray, deviations: np.ndarray | None) -> Any:
    if deviations is None or deviations.ndim == 1:
        rows = {"x": x, "y": y} | ({} if deviations is None else {"sigma": deviations})
        return residual_term(partial(_residuals, f, turned), rows)
    # points whose errors belong together are one row
    rows = jax.tree.map(lambda leaf: leaf[None], {"x": x, "y": y})
    return residual_term(partial(_whitened, f, turned), rows, deviations, chunk=None)


def _residuals(f: Callable, turned: bool, params: Any, rows: Any) -> Any:
    """Return the residuals of some points in units of their errors."""
    left = rows["y"] - _curve(f, turned, params, rows["x"], rows["y"].shape)
    return left / rows["sigma"] if "sigma" in rows else left


def _whitened(f: Callable, turned: bool, params: Any, rows: Any, factor: Any) -> Any:
    """Return the residuals of all points, which one row holds, in units in which they are independent."""
    x, y = jax.tree.map(lambda leaf: leaf[0], rows["x"]), rows["y"][0]
    left = y - _curve(f, turned, params, x, y.shape)
    return jax.scipy.linalg.solve_triangular(factor, left, lower=True)[None]


def _curve(f: Callable, turned: bool, params: Any, x: Any, shape: tuple) -> Any:
    values = jnp.asarray(f(jnp.moveaxis(x, 0, -1) if turned else x, *params.values()))
    if values.shape not in ((), shape):
        raise ValueError(
            f"{WHERE}: f gave shape {values.shape} for {shape[0]} points. It must return one number per point."
        )
    return jnp.broadcast_to(values, shape)
