"""What an error of Spark says, in a line: it comes with the stacks of two languages."""

from __future__ import annotations

from penstock.engines.spark.jvm import java_message


def first_words(error: BaseException) -> str:
    """Of Java's own message, where there is one, and not of its stack."""
    message = java_message(error)
    return ((str(error) if message is None else message).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def cause(error: object) -> str:
    r"""The innermost message: what the user's code or Spark said first. Frames of a stack have names of errors, too.

    >>> cause("Job aborted\nZeroDivisionError: division by zero\n  at o.a.s.SparkErrorUtils.safely(Utils.scala:83)")
    'ZeroDivisionError: division by zero'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if ("Error" in line or "Exception" in line) and not line.startswith("at ")]
    return (errors[-1] if errors else lines[0] if lines else "no message")[:500]
