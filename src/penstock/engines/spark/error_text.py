"""One-line summaries of the errors of Spark, whose full texts have stack traces of two languages, and of user code."""

from __future__ import annotations

import re
import reprlib
from typing import Any

from penstock.dataflow.code_location import failing_line, is_installed, source_file
from penstock.dataflow.errors import PenstockError
from penstock.engines.spark.jvm import java_message

_MAX_MESSAGE, _MAX_ROW, _MAX_CAUSE = 300, 200, 800  # characters
_PENSTOCK_ERROR = re.compile(r"^penstock\.[\w.]+: (.*)$", re.MULTILINE)
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)
_short = reprlib.Repr()
_short.maxdict, _short.maxlist, _short.maxtuple, _short.maxstring, _short.maxother = 20, 8, 20, 60, 60


class UserFunctionError(PenstockError):
    """A function of the user raised an exception while it processed rows."""


def user_function_error(
    operator: str, function: Any, error: BaseException, *, row: object = None, number: int | None = None
) -> UserFunctionError:
    """Return the error that names the operator, the line of the user's code and the row, all in one line.

    operator: what failed, such as "operator 'parse'".
    row: the input of the function; `number` is the number of a row that a source generates.
    """
    line = failing_line(error, source_file(function))
    where = f" in {line.filename}, line {line.lineno}" if line is not None else ""
    message = " ".join(str(error).split())[:_MAX_MESSAGE]
    given = "" if row is None else f"; row: {_short.repr(row)[:_MAX_ROW]}"
    if number is not None:
        given = f"; row number {number}"
    kind = type(error).__name__
    return UserFunctionError(f"{operator} failed{where}: {kind}{': ' if message else ''}{message}{given}")


def first_line(error: BaseException) -> str:
    """Return the first line of the Java message of an error, or of its Python message if Java is not involved."""
    message = java_message(error)
    return ((str(error) if message is None else message).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def root_cause(error: object) -> str:
    r"""Return the innermost message: the one that the user's code or Spark raised first, and the line of that code.

    >>> root_cause("Job aborted\nZeroDivisionError: division by zero\n  at o.a.s.ErrorUtils.safely(Utils.scala:83)")
    'ZeroDivisionError: division by zero'
    >>> root_cause('Job aborted\n  File "/home/me/flow.py", line 7, in parse\nKeyError: 3\n  at o.a.s.Task.run')
    'KeyError: 3 (/home/me/flow.py, line 7)'
    """
    text = str(error)
    if own := _PENSTOCK_ERROR.findall(text):
        return str(own[-1])[:_MAX_CAUSE]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The frames of a Java stack trace also contain names of error classes.
    errors = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    message = (errors[-1] if errors else lines[0] if lines else "no message")[:_MAX_CAUSE]
    frames = [(file, line) for file, line in _FRAME.findall(text) if not is_installed(file)]
    return f"{message} ({frames[-1][0]}, line {frames[-1][1]})" if frames else message
