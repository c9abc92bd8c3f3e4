"""The errors that users of a dataflow or a plan see."""

from __future__ import annotations


class PenstockError(Exception):
    """Base class of all errors that Penstock raises on purpose.

    The message states what was given, what is required, and what to do.
    """


class DataflowError(PenstockError):
    """The declaration of a dataflow is invalid."""


class PlanError(PenstockError):
    """The plan is invalid, or it is for another dataflow."""


class SparkUnavailableError(PenstockError):
    """Spark does not start on this machine."""
