"""Errors of functions of users, in one line: the operator, the line of the user's code and the row."""

from __future__ import annotations

import reprlib
from traceback import FrameSummary
from typing import Any

from penstock.dataflow.code_location import failing_line, source_file
from penstock.dataflow.errors import PenstockError

_MAX_MESSAGE, _MAX_ROW = 300, 200  # characters
_short = reprlib.Repr()
_short.maxdict, _short.maxlist, _short.maxtuple, _short.maxstring, _short.maxother = 20, 8, 20, 60, 60


class UserFunctionError(PenstockError):
    """A function of the user raised an exception while it processed rows."""


def user_function_error(
    operator: str,
    function: Any,
    error: BaseException,
    *,
    row: object = None,
    number: int | None = None,
    line: FrameSummary | None = None,
) -> UserFunctionError:
    """Return the error that names the operator, the line of the user's code and the row, all in one line.

    operator: the subject of the error, such as "operator 'parse'".
    row: the input of the function; `number` is the number of a row that a source generates.
    line: the line of the user's code, if the traceback of the error does not contain it.
    """
    line = failing_line(error, source_file(function)) or line
    where = f" in {line.filename}, line {line.lineno}" if line is not None else ""
    message = " ".join(str(error).split())[:_MAX_MESSAGE]
    given = "" if row is None else f"; row: {_short.repr(row)[:_MAX_ROW]}"
    if number is not None:
        given = f"; row number {number}"
    kind = type(error).__name__
    return UserFunctionError(f"{operator} failed{where}: {kind}{': ' if message else ''}{message}{given}")
