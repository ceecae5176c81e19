"""Rows from tables: data frames, datasets and masked arrays as the arrays they hold, or an error that says what to do.

The columns of a table become a dict of arrays by name; its index is left out. Of an xarray Dataset rows
lie along the dimension that all its variables have first; coordinates along it come too if they are numbers.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np


def as_arrays(where: str, rows: Any) -> Any:
    """Return rows with tables as dicts of arrays and masked arrays without their empty mask."""
    if hasattr(rows, "data_vars"):  # an xarray Dataset
        rows = _of_dataset(where, rows)
    elif hasattr(rows, "columns") and not isinstance(rows, Mapping):  # of pandas, polars, astropy
        rows = _of_table(where, rows)
    return jax.tree.map(lambda leaf: _filled(where, leaf), rows, is_leaf=_masked)


def _of_table(where: str, table: Any) -> dict[str, Any]:
    # astropy's columns are themselves a mapping from names; those of the others list them
    names = list(table.columns)
    odd = [name for name in names if not isinstance(name, str)]
    if odd or not names:
        told = f"a column is named {odd[0]!r}, which is no text" if odd else "it has no columns"
        raise TypeError(f"{where}: rows is a table and {told}. Pass its columns as arrays: {{'x': np.asarray(...)}}.")
    if len(set(names)) < len(names):
        raise TypeError(f"{where}: rows is a table with two columns of one name. Rename one, or leave it out.")
    return {name: _column(where, name, table[name]) for name in names}


def _column(where: str, name: str, column: Any) -> Any:
    array = column if _masked(column) else np.asarray(column)
    if array.dtype.kind in "OSUMm":
        raise TypeError(
            f"{where}: column {name!r} of rows is {array.dtype}, not numbers. Leave it out, table[['x', 'y']], or turn "
            "it into numbers; rows with missing values have to go first."
        )
    return array


def _of_dataset(where: str, data: Any) -> dict[str, Any]:
    names = list(data.data_vars)
    if not names or not data[names[0]].dims:
        raise TypeError(f"{where}: rows is a Dataset without variables that have rows. Pass a dict of arrays.")
    along = data[names[0]].dims[0]
    for name in names:
        if data[name].dims[:1] != (along,):
            raise TypeError(
                f"{where}: variable {name!r} of rows has dimensions {data[name].dims}, but rows lie along {along!r}, "
                f"the first of {names[0]!r}. Use data.transpose({along!r}, ...), and pass what has no rows by args."
            )
    beside = [name for name in data.coords if data[name].dims == (along,) and data[name].dtype.kind in "biuf"]
    return {str(name): _column(where, str(name), data[name].values) for name in [*names, *beside]}


def _masked(leaf: Any) -> bool:
    return isinstance(leaf, np.ma.MaskedArray)


def _filled(where: str, leaf: Any) -> Any:
    if not _masked(leaf):
        return leaf
    if np.ma.is_masked(leaf):
        count = int(np.ma.count_masked(leaf))
        raise TypeError(
            f"{where}: rows has a masked array with {count:,} masked numbers, whose values mean "
            "nothing. Leave these rows out, x[~mask], or pass x.filled(0.0) and a weight that is 0 there: "
            "fn returns rows['weight'] * (model - rows['x'])."
        )
    return np.asarray(leaf.data)
