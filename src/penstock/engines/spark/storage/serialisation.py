"""The check that a function of the user can be sent to the Python workers of Spark."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from penstock.dataflow.errors import DataflowError


def check_serialisable(owner: str, function: Any) -> None:
    """Raise DataflowError if a function cannot be serialised. PySpark prints a stack trace in this case.

    owner: the owner of the function, such as "operator 'parse'".
    """
    dumps: Any = cloudpickle.dumps
    try:
        dumps(function)
    except Exception as error:  # each type has its own exceptions
        cause = " ".join(str(error).split())
        raise DataflowError(
            f"the function of {owner} uses an object that cannot be sent to Python workers: {cause}; create the object "
            "inside the function, or in a module that the function imports"
        ) from None
