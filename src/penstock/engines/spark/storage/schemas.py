"""Schemas: declared ones, the columns that the readers of a channel expect, and the columns that hold event time."""

from __future__ import annotations

from typing import cast

from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType

from penstock.dataflow import DataflowError, PlanError
from penstock.engines.spark.storage.column_names import quoted

EVENT_TIME = "spark.watermarkDelayMs"  # Spark's metadata key of the columns that hold event time


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


def refuse_intervals_of_months(owner: str, schema: StructType) -> None:
    """Raise DataflowError for a column that PyArrow cannot read: Arrow has intervals of months, PyArrow has none.

    owner: the receiver of the rows, such as "sink 'out'".
    """
    for field in schema:
        kind = field.dataType.simpleString()
        if "interval year" in kind or "interval month" in kind:
            raise DataflowError(
                f"{owner} receives column '{field.name}' of type {kind}, which PyArrow cannot read; convert it before, "
                "as with cast('string')"
            )


def event_time_columns(schema: StructType) -> tuple[StructField, ...]:
    """Return the columns that Spark takes for event time: timestamps, and window structs."""
    return tuple(field for field in schema if EVENT_TIME in field.metadata)


def with_metadata(df: DataFrame, metadata: dict[str, dict[str, object]]) -> DataFrame:
    """Return the DataFrame with this metadata of columns, by name. Other columns keep theirs."""
    names, schema = df.columns, df.schema
    if all(schema[name].metadata == new for name, new in metadata.items()):
        return df
    numbered = df.toDF(*(f"_{position}" for position in range(len(names))))  # names may differ in case only
    return numbered.select(
        *(
            F.col(f"_{position}").alias(name, metadata=metadata.get(name, schema[position].metadata))
            for position, name in enumerate(names)
        )
    )


def _columns(schema: StructType) -> set[str]:
    return {f"{field.name} {field.dataType.simpleString()}" for field in schema}


def _in_order(df: DataFrame, schema: StructType) -> DataFrame:
    return df if df.columns == schema.names else df.select(*map(quoted, schema.names))


def _listed(columns: set[str]) -> str:
    return ", ".join(sorted(columns)) or "nothing"
