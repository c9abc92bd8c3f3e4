"""One-line summaries of Spark errors. The full text of an error contains stack traces of Python and Java."""

from __future__ import annotations

import re

from penstock.dataflow.code_location import is_installed
from penstock.engines.spark.jvm import java_message

_MAX_CAUSE = 800  # characters
_PENSTOCK_ERROR = re.compile(r"^penstock\.[\w.]+: (.*)$", re.MULTILINE)
_CALLED_FROM = re.compile(r"^\"[^\"]*\" was called from\s+(\S.*\.py):(\d+)$", re.MULTILINE)  # location of an expression
_SPARK_CLASS = re.compile(r"^(?:pyspark|org\.apache\.spark)\.[\w.]*?(\w+(?:Exception|Error): )")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)', re.MULTILINE)


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
    >>> root_cause('org.apache.spark.MathException: 1 / 0\n== DataFrame ==\n"div" was called from\n/home/flow.py:7')
    'MathException: 1 / 0 (/home/flow.py, line 7)'
    """
    text = str(error)
    if own := _PENSTOCK_ERROR.findall(text):
        return str(own[-1])[:_MAX_CAUSE]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # The frames of a Java stack trace also contain names of error classes.
    errors = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    first = errors[-1] if errors else lines[0] if lines else "no message"
    message = _SPARK_CLASS.sub(r"\1", first)[:_MAX_CAUSE].rstrip(" ;")
    locations = _CALLED_FROM.findall(text) or _FRAME.findall(text)
    frames = [(file, line) for file, line in locations if not is_installed(file)]
    return f"{message} ({frames[-1][0]}, line {frames[-1][1]})" if frames else message
