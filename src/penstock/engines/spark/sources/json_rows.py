"""JSON as rows of a schema: what is read is what Spark's `to_json` writes.

A date or a time is text in ISO 8601, binary is base64, a map is an object, and what is null may be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Required, TypedDict

import pyarrow as pa
from pyarrow import types

from penstock.dataflow.errors import DataflowError


class Moment(datetime):
    """A time as people write it: a date alone, or without its seconds, is one too."""


def read_moment(_: type, text: Any) -> Moment:
    """
    >>> read_moment(Moment, "2026-01-31 10:05").minute
    5
    """
    return Moment.fromisoformat(text)


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (types.is_boolean, bool),
    (types.is_integer, int),
    (types.is_floating, float),
    (types.is_decimal, Decimal),
    (types.is_string, str),
    (types.is_binary, bytes),
    (types.is_date, date),
    (types.is_timestamp, Moment),
)


def row_type(schema: pa.Schema) -> Any:
    """The type of a row, for msgspec to read with `read_moment` as its hook.

    >>> import msgspec
    >>> row = row_type(pa.schema({"on": pa.date32(), "n": pa.map_(pa.string(), pa.int64())}))
    >>> msgspec.json.decode(b'{"on": "2026-01-31", "n": {"a": 1}, "more": true}', type=row)
    {'on': datetime.date(2026, 1, 31), 'n': {'a': 1}}
    """
    return _object(schema, "")


def _object(fields: Any, path: str) -> Any:
    found = {one.name: _nullable(one, f"{path}{one.name}") for one in fields}
    return TypedDict(
        "Row", {one.name: found[one.name] if one.nullable else Required[found[one.name]] for one in fields}, total=False
    )


def _nullable(field: pa.Field, path: str) -> Any:
    """Spark takes the schema's word that there is none, and does not look."""
    value = _value(field.type, path)
    return value | None if field.nullable else value


def _value(of: pa.DataType, path: str) -> Any:
    if types.is_struct(of):
        return _object(of, f"{path}.")
    if types.is_list(of):
        return list[_nullable(of.value_field, path)]
    if types.is_map(of) and (types.is_string(of.key_type) or types.is_integer(of.key_type)):
        return dict[_value(of.key_type, path), _nullable(of.item_field, path)]
    for holds, python in _PLAIN:
        if holds(of):
            return python
    raise DataflowError(
        f"column '{path}' is of the type {of}, which is not read from JSON; declare it as a string and parse it in an "
        "operator"
    )
