"""Schemas as DDL text. A StructType of PySpark is converted without a Spark session."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from penstock.dataflow.errors import DataflowError


@runtime_checkable
class Struct(Protocol):
    """A `pyspark.sql.types.StructType`, or a value with the same attributes."""

    fields: list[Any]

    def simpleString(self) -> str: ...  # noqa: N802 - the name in PySpark


def ddl(schema: str | Struct) -> str:
    """Return the DDL text of a schema. A text is returned unchanged.

    Raises:
        DataflowError: The schema has no columns.

    >>> from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType
    >>> ddl(StructType([StructField("user", StringType()), StructField("total price", ArrayType(LongType()))]))
    '`user` string, `total price` array<bigint>'
    """
    if isinstance(schema, str):
        return schema
    if not schema.fields:
        raise DataflowError("The schema is a StructType without fields; give it one field per column.")
    return ", ".join(f"`{field.name}` {_type(field.dataType)}" for field in schema.fields)


def _type(kind: Any) -> str:
    """Return the DDL text of a type. Names are quoted, which `simpleString` does not do."""
    if isinstance(kind, Struct):
        return f"struct<{', '.join(f'`{field.name}`: {_type(field.dataType)}' for field in kind.fields)}>"
    if hasattr(kind, "elementType"):
        return f"array<{_type(kind.elementType)}>"
    if hasattr(kind, "keyType"):
        return f"map<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return str(kind.simpleString())
