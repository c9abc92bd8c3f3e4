"""Conversion of the rows that a user's function returns to Arrow.

A value that does not match the schema is refused; Arrow alone would turn it into a null. All checks work by column, so
their cost per row is negligible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.dataflow.errors import DataflowError

_INVALID_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def several_rows(result: Any, producer: str) -> Iterable[Any]:
    """Return what a row function returned if it can be several rows; raise DataflowError otherwise.

    >>> several_rows(3, "the function of 'parse'")
    Traceback (most recent call last):
    ...
    penstock.dataflow.errors.DataflowError: the function of 'parse' returns 3; return a dict, several dicts, or None
    """
    if not hasattr(type(result), "__iter__"):
        raise DataflowError(f"{producer} returns {repr(result)[:80]}; return a dict, several dicts, or None")
    rows: Iterable[Any] = result
    return rows


def batch_from_dicts(rows: Sequence[Any], schema: pa.Schema, producer: str) -> pa.RecordBatch:
    """Return a batch of rows that are dicts with exactly the columns of the schema.

    `producer` names the function in the error message. Raises DataflowError if a row does not match the schema.
    """
    names = schema.names
    try:
        columns = [list(map(itemgetter(name), rows)) for name in names]
        exact = sum(map(len, rows)) == len(rows) * len(set(names))  # no column is missing, so none is left over
    except (KeyError, TypeError, IndexError):
        exact = False
    if not exact:
        wrong = next(row for row in rows if not isinstance(row, dict) or row.keys() != set(names))
        raise _mismatch(wrong, names, producer)
    return _batch(columns, schema, producer)


def batch_from_rows(rows: Sequence[Any], schema: pa.Schema, producer: str) -> pa.RecordBatch:
    """Return a batch of rows that are dicts, tuples or lists in the schema's order, or values of a single column.

    `producer` names the function in the error message. Raises DataflowError if a row does not match the schema.
    """
    names = schema.names
    kinds = set(map(type, rows))
    if len(names) == 1:
        if any(issubclass(kind, dict | tuple | list) for kind in kinds):
            rows = [_single_value(row, schema.field(0), producer) for row in rows]
        return _batch([rows], schema, producer)
    if all(issubclass(kind, tuple | list) for kind in kinds) and set(map(len, rows)) == {len(names)}:
        return _batch(zip(*rows, strict=True), schema, producer)
    return batch_from_dicts([_as_dict(row, names, producer) for row in rows], schema, producer)


def batch_from_columns(columns: Any, rows: int, schema: pa.Schema, producer: str) -> pa.RecordBatch:
    """Return a batch of `rows` rows from a mapping with one NumPy or Arrow array per column of the schema.

    `producer` names the function in the error message. Raises DataflowError if the columns do not match the schema.
    """
    if not isinstance(columns, Mapping):
        raise DataflowError(
            f"{producer} is vectorised and returns {type(columns).__name__}; return a dict with one array for each of "
            f"the columns {', '.join(schema.names)}"
        )
    if columns.keys() != set(schema.names):
        raise _mismatch(dict(columns), schema.names, producer)
    for name in schema.names:
        if len(columns[name]) != rows:
            raise DataflowError(
                f"{producer} is vectorised and returns {len(columns[name])} values in column '{name}' for {rows} row "
                "numbers; return one value per row number"
            )
    return _batch([columns[name] for name in schema.names], schema, producer)


def _single_value(row: Any, field: pa.Field, producer: str) -> Any:
    """Return the value of a single column. A dict or list may be the value itself if the column has such a type."""
    if isinstance(row, dict):
        if row.keys() == {field.name}:
            return row[field.name]
        is_value = pa.types.is_struct(field.type) or pa.types.is_map(field.type)
    elif isinstance(row, tuple | list):
        is_value = isinstance(row, list) and pa.types.is_list(field.type)
        if not is_value and len(row) == 1:
            return row[0]
    else:
        is_value = True
    if not is_value:
        raise _mismatch(row, [field.name], producer)
    return row


def _as_dict(row: Any, names: list[str], producer: str) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    if isinstance(row, tuple | list) and len(row) == len(names):
        return dict(zip(names, row, strict=True))
    raise _mismatch(row, names, producer)


def _batch(columns: Iterable[Sequence[Any]], schema: pa.Schema, producer: str) -> pa.RecordBatch:
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        try:
            arrays.append(_array(column, field.type))
            if arrays[-1].null_count and not field.nullable:  # Spark trusts the schema and does not check
                raise ValueError("the column is NOT NULL, but a value is None")
        except _INVALID_VALUE as error:
            raise DataflowError(
                f"{producer} returns a value in column '{field.name}' that is not a valid {field.type}: {error}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.Array):
        if not column.type.equals(kind):
            raise TypeError(f"the array has the type {column.type}")
        return column
    is_numeric = isinstance(column, np.ndarray) and column.dtype != object  # Arrow refuses fractions in these
    if pa.types.is_integer(kind) and not is_numeric:
        _refuse_fractions(column)
    return pa.array(column, kind)


def _refuse_fractions(column: Sequence[Any]) -> None:
    """Raise ValueError for a fraction in a column of integers, which Arrow would truncate."""
    if any(issubclass(kind, float) for kind in set(map(type, column))):
        for value in column:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"{value!r} is not a whole number")


def _mismatch(row: Any, names: list[str], producer: str) -> DataflowError:
    if isinstance(row, dict):
        given = f"a row with the columns {', '.join(map(str, row))}" if row else "a row without columns"
    elif isinstance(row, tuple | list):
        given = f"a row of {len(row)} values"
    else:
        given = f"{repr(row)[:80]} as a row"
    return DataflowError(
        f"{producer} returns {given}, but its columns are {', '.join(names)}; return exactly these, with None for a "
        "missing value"
    )
