"""The 27 nonlinear regression sets of NIST's Statistical Reference Datasets, two starts each."""

import ast
import functools
import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from shardfit import data

FUNCTIONS = {"exp": jnp.exp, "log": jnp.log, "sin": jnp.sin, "cos": jnp.cos, "arctan": jnp.arctan}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
DIGITS = 11  # what NIST certifies; more agreement than that is not evidence


@dataclass(frozen=True)
class Regression:
    """One certified regression. certified, sd: (p,); rows: each (n,); residual(params, rows) -> (n,)."""

    name: str
    difficulty: str
    residual: Callable
    rows: Mapping[str, np.ndarray]
    starts: tuple[np.ndarray, ...]
    certified: np.ndarray
    sd: np.ndarray
    rss: float

    @property
    def dof(self) -> int:
        """Observations less parameters; counted, since Rat43's file misprints it."""
        return len(self.rows["y"]) - len(self.certified)

    def score(self, params) -> float:
        """Return the least number of certified digits matched by a parameter.

        The sum of squares is left out: it hides errors of the parameters, and Lanczos1's cannot be reproduced.
        """
        return float(lre(params, self.certified).min())


def lre(values, certified) -> np.ndarray:
    """Log relative error, in digits, between 0 and 11; non-finite values score 0."""
    values, certified = np.atleast_1d(np.asarray(values, float)), np.atleast_1d(certified)
    error = np.abs(values - certified) / np.abs(certified)
    error = np.where(np.isfinite(error), error, 1.0)
    return np.clip(-np.log10(np.maximum(error, 10.0**-DIGITS)), 0.0, DIGITS)


@functools.cache
def load() -> dict[str, Regression]:
    """All sets by name."""
    folder = data.folder("nist_strd")
    facts = json.loads((folder / "certified.json").read_text())
    return {name: _regression(name, fact, folder) for name, fact in facts.items()}


def _regression(name: str, fact: dict, folder: Path) -> Regression:
    table = np.loadtxt(folder / f"{name}.dat", skiprows=fact["data_starts_line"] - 1, max_rows=fact["n_obs"], ndmin=2)
    return Regression(
        name=name,
        difficulty=fact["difficulty"],
        residual=_residual(fact["model"]),
        rows=dict(zip(fact["columns"], table.T, strict=True)),
        starts=(np.array(fact["start1"]), np.array(fact["start2"])),
        certified=np.array(fact["certified"]),
        sd=np.array(fact["certified_sd"]),
        rss=fact["rss"],
    )


def _residual(formula: str) -> Callable:
    """Turn "response = model", or just "model" for the response y, into a residual function."""
    response, _, model = formula.rpartition("=")
    response, model = _parse(response or "y"), _parse(model)

    def residual(params, rows):
        names = {"pi": np.pi, **rows, **{f"b{i}": b for i, b in enumerate(params, 1)}}
        return _evaluate(response, names) - _evaluate(model, names)

    return residual


def _parse(formula: str) -> ast.expr:
    return ast.parse(formula.strip(), mode="eval").body


def _evaluate(node: ast.expr, names: Mapping):
    """Arithmetic and five functions only: a data file must never be able to run code."""
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name):
            return names[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(operand, names))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_evaluate(left, names), _evaluate(right, names))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](_evaluate(argument, names))
        case _:
            known = ", ".join(FUNCTIONS)
            raise ValueError(f"'{ast.unparse(node)}' in a formula is not arithmetic. Use + - * / ** and {known} only.")
