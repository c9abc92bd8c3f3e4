"""What an error of Spark says, in a line: it comes with the stacks of two languages."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError


def first_words(error: BaseException) -> str:
    """Of Java's own message, where there is one, and not of its stack."""
    said = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
    return ((said or "").strip() or type(error).__name__).splitlines()[0].rstrip(".")


def cause(error: object) -> str:
    r"""The innermost message: what the user's code or Spark said first. Frames of a stack have names of errors, too.

    >>> cause("Job aborted\nZeroDivisionError: division by zero\n  at o.a.s.SparkErrorUtils.safely(Utils.scala:83)")
    'ZeroDivisionError: division by zero'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (errors[-1] if errors else lines[0] if lines else "no message")[:500]
