"""Declared schemas, and the columns of a query compared with those that the readers of its channel expect."""

from __future__ import annotations

from typing import cast

from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.dataflow import DataflowError, PlanError
from penstock.engines.spark.storage.column_names import quoted


def parse_schema(subject: str, ddl: str) -> StructType:
    """Parse a schema string. Needs a running Spark session.

    `subject` names the declaration in the error message. Raises DataflowError if Spark cannot parse the string.
    """
    try:
        return cast(StructType, StructType.fromDDL(ddl))
    except ParseException as error:
        reason = str(error).strip().splitlines()[0]
        raise DataflowError(f"{subject} has schema={ddl!r}, which Spark cannot parse: {reason}") from None


def to_loop_schema(df: DataFrame, name: str, declared: str) -> DataFrame:
    """Return the output of the operator that closes a loop, with its columns in the declared order.

    The readers of the loop are compiled before its writer, so the schema of the loop must be declared.
    Raises DataflowError if the columns differ from the declaration.
    """
    schema = parse_schema(f"the loop that '{name}' closes", declared)
    if _columns(df.schema) != _columns(schema):
        raise DataflowError(
            f"the loop that '{name}' closes is declared with {schema.simpleString()}, but '{name}' returns "
            f"{df.schema.simpleString()}; use the same columns and types in both places"
        )
    return _in_order(df, schema)


def to_channel_schema(df: DataFrame, name: str, channel: StructType) -> DataFrame:
    """Return rows for a channel that already has rows, with the columns in the channel's order.

    Raises PlanError if the columns differ from those of the channel.
    """
    given, expected = _columns(df.schema), _columns(channel)
    if given != expected:
        raise PlanError(
            f"the function of '{name}' returns other columns than before, and rows with the old columns are still "
            f"unread: it returns {_listed(given - expected)} in place of {_listed(expected - given)}; return the old "
            "columns, or begin a new run in another directory"
        )
    return _in_order(df, channel)


def _columns(schema: StructType) -> set[str]:
    return {f"{field.name} {field.dataType.simpleString()}" for field in schema}


def _in_order(df: DataFrame, schema: StructType) -> DataFrame:
    return df if df.columns == schema.names else df.select(*map(quoted, schema.names))


def _listed(columns: set[str]) -> str:
    return ", ".join(sorted(columns)) or "nothing"
