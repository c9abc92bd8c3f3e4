"""JSON objects as rows of a schema, in the form that Spark's `to_json` writes.

Dates and timestamps are ISO 8601 text, binary values are base64, maps are objects, and null fields may be omitted.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from types import GenericAlias
from typing import Any, Required, TypedDict

import pyarrow as pa
from pyarrow import types

from penstock.dataflow.errors import DataflowError


class LenientTimestamp(datetime):
    """A timestamp that may lack its seconds or its time of day."""


def decode_timestamp(_: type, text: Any) -> LenientTimestamp:
    """Decode a timestamp; msgspec calls this hook for types that it does not know.

    >>> decode_timestamp(LenientTimestamp, "2026-01-31 10:05").minute
    5
    """
    return LenientTimestamp.fromisoformat(text)


_typed_dict: Any = TypedDict  # called with members that are known only at run time
_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (types.is_boolean, bool),
    (types.is_integer, int),
    (types.is_floating, float),
    (types.is_decimal, Decimal),
    (types.is_string, str),
    (types.is_binary, bytes),
    (types.is_date, date),
    (types.is_timestamp, LenientTimestamp),
)


def row_type(schema: pa.Schema) -> Any:
    """Return the type of a row, for msgspec with `decode_timestamp` as its hook.

    Raises DataflowError if a column has a type that JSON cannot represent.

    >>> import msgspec
    >>> row = row_type(pa.schema({"on": pa.date32(), "n": pa.map_(pa.string(), pa.int64())}))
    >>> msgspec.json.decode(b'{"on": "2026-01-31", "n": {"a": 1}, "more": true}', type=row)
    {'on': datetime.date(2026, 1, 31), 'n': {'a': 1}}
    """
    return _object(schema, "")


def _object(fields: Any, path: str) -> Any:
    values = {field.name: _nullable(field, f"{path}{field.name}") for field in fields}
    members = {field.name: values[field.name] if field.nullable else Required[values[field.name]] for field in fields}
    return _typed_dict("Row", members, total=False)


def _nullable(field: pa.Field, path: str) -> Any:
    """Refuse nulls in a NOT NULL field, because Spark trusts the schema and does not check."""
    value = _value(field.type, path)
    return value | None if field.nullable else value


def _value(kind: pa.DataType, path: str) -> Any:
    if types.is_struct(kind):
        return _object(kind, f"{path}.")
    if types.is_list(kind):
        return GenericAlias(list, (_nullable(kind.value_field, path),))
    if types.is_map(kind) and (types.is_string(kind.key_type) or types.is_integer(kind.key_type)):
        return GenericAlias(dict, (_value(kind.key_type, path), _nullable(kind.item_field, path)))
    for is_kind, python_type in _PLAIN:
        if is_kind(kind):
            return python_type
    raise DataflowError(
        f"column '{path}' has the type {kind}, which cannot be read from JSON; declare it as a string and parse it in "
        "an operator"
    )
