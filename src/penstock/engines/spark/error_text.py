"""One-line summaries of Spark's errors, whose full texts contain the stack traces of two languages."""

from __future__ import annotations

from penstock.engines.spark.jvm import java_message


def first_line(error: BaseException) -> str:
    """Return the first line of the Java message of an error, or of its Python message if Java is not involved."""
    message = java_message(error)
    return ((str(error) if message is None else message).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def root_cause(error: object) -> str:
    r"""Return the innermost message: the one that the user's code or Spark raised first.

    >>> root_cause("Job aborted\nZeroDivisionError: division by zero\n  at o.a.s.ErrorUtils.safely(Utils.scala:83)")
    'ZeroDivisionError: division by zero'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # The frames of a Java stack trace also contain names of error classes.
    errors = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (errors[-1] if errors else lines[0] if lines else "no message")[:500]
