"""The columns that a query gives against those that readers of its channel know: by name and type, in any order."""

from __future__ import annotations

from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.dataflow import DataflowError, PlanError
from penstock.engines.spark.storage.column_names import quoted


def declared_columns(whose: str, ddl: str) -> StructType:
    """Needs a running Spark, which alone knows all types."""
    try:
        return StructType.fromDDL(ddl)
    except ParseException as error:
        said = str(error).strip().splitlines()[0]
        raise DataflowError(f"{whose} has schema={ddl!r}, which Spark does not read: {said}") from None


def as_declared(df: DataFrame, name: str, declared: str) -> DataFrame:
    """What closes a loop, in the order in which the loop was declared: its readers are compiled before its writer."""
    schema = declared_columns(f"the loop that '{name}' closes", declared)
    if _columns(df.schema) != _columns(schema):
        raise DataflowError(
            f"the loop that '{name}' closes is declared with {schema.simpleString()}, and '{name}' gives "
            f"{df.schema.simpleString()}; give both the same columns and types"
        )
    return _in_order(df, schema)


def as_held(df: DataFrame, name: str, held: StructType) -> DataFrame:
    """What is appended to a channel, in the order of the rows that the channel holds."""
    given, known = _columns(df.schema), _columns(held)
    if given != known:
        raise PlanError(
            f"the function of '{name}' gives other columns than those of the rows behind it, which are not all read "
            f"yet: it gives {_words(given - known)} in place of {_words(known - given)}; let it give what it gave, or "
            "begin a new run in another directory"
        )
    return _in_order(df, held)


def _columns(schema: StructType) -> set[str]:
    return {f"{field.name} {field.dataType.simpleString()}" for field in schema}


def _in_order(df: DataFrame, schema: StructType) -> DataFrame:
    return df if df.columns == schema.names else df.select(*map(quoted, schema.names))


def _words(columns: set[str]) -> str:
    return ", ".join(sorted(columns)) or "nothing"
