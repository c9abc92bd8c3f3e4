"""Rows that a user's function makes, as Arrow. Whatever is not of the schema is refused, where Arrow would see a null.

All is looked at column by column, which costs a row next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

import pyarrow as pa

from penstock.dataflow.errors import DataflowError

_NO_SUCH_VALUE = (pa.ArrowException, TypeError, ValueError, OverflowError)


def of_dicts(made: Sequence[Any], schema: pa.Schema, whose: str) -> pa.RecordBatch:
    """Each row has exactly the schema's columns."""
    names = schema.names
    try:
        columns = [list(map(itemgetter(name), made)) for name in names]
        exact = sum(map(len, made)) == len(made) * len(set(names))  # none is missing, so none is left over
    except (KeyError, TypeError, IndexError):
        exact = False
    if not exact:
        raise _unlike(next(row for row in made if not isinstance(row, dict) or row.keys() != set(names)), names, whose)
    return _batch(columns, schema, whose)


def of_any(made: Sequence[Any], schema: pa.Schema, whose: str) -> pa.RecordBatch:
    """Each row is a dict, a tuple (or a list) in the schema's order, or the bare value of an only column."""
    names = schema.names
    kinds = set(map(type, made))
    if len(names) == 1:
        if any(issubclass(kind, dict | tuple | list) for kind in kinds):
            made = [_only(row, schema.field(0), whose) for row in made]
        return _batch([made], schema, whose)
    if all(issubclass(kind, tuple | list) for kind in kinds) and set(map(len, made)) == {len(names)}:
        return _batch(zip(*made, strict=True), schema, whose)
    return of_dicts([_named(row, names, whose) for row in made], schema, whose)


def _only(row: Any, field: pa.Field, whose: str) -> Any:
    """The value of an only column. Of one that holds dicts or lists, a dict or a list is the bare value."""
    if isinstance(row, dict):
        if row.keys() == {field.name}:
            return row[field.name]
        bare = pa.types.is_struct(field.type) or pa.types.is_map(field.type)
    elif isinstance(row, tuple | list):
        bare = isinstance(row, list) and pa.types.is_list(field.type)
        if not bare and len(row) == 1:
            return row[0]
    else:
        bare = True
    if not bare:
        raise _unlike(row, [field.name], whose)
    return row


def _named(row: Any, names: list[str], whose: str) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    if isinstance(row, tuple | list) and len(row) == len(names):
        return dict(zip(names, row, strict=True))
    raise _unlike(row, names, whose)


def _batch(columns: Iterable[Sequence[Any]], schema: pa.Schema, whose: str) -> pa.RecordBatch:
    arrays = []
    for column, field in zip(columns, schema, strict=True):
        try:
            if pa.types.is_integer(field.type):
                _refuse_fractions(column)
            arrays.append(pa.array(column, field.type))
            if arrays[-1].null_count and not field.nullable:  # Spark takes the schema's word for it
                raise ValueError("it is NOT NULL, and None is given")
        except _NO_SUCH_VALUE as error:
            raise DataflowError(f"{whose} gives column '{field.name}' what is no {field.type}: {error}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _refuse_fractions(column: Sequence[Any]) -> None:
    """Arrow would cut them off."""
    if any(issubclass(kind, float) for kind in set(map(type, column))):
        for value in column:
            if isinstance(value, float) and not value.is_integer():
                raise ValueError(f"{value!r} is not whole")


def _unlike(row: Any, names: list[str], whose: str) -> DataflowError:
    if isinstance(row, dict):
        given = f"a row with {', '.join(map(str, row)) or 'nothing'}"
    elif isinstance(row, tuple | list):
        given = f"a row of {len(row)} values"
    else:
        given = f"{repr(row)[:80]} for a row"
    return DataflowError(
        f"{whose} gives {given}, and its columns are {', '.join(names)}; give exactly these, None where there is no "
        "value"
    )
