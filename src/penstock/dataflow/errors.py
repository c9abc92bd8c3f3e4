"""The one family of errors that users of a dataflow or a plan see."""

from __future__ import annotations


class PenstockError(Exception):
    """What was given, what is required, what to do. Every error that Penstock raises on purpose is one."""


class DataflowError(PenstockError):
    """The declared dataflow breaks a rule."""


class PlanError(PenstockError):
    """The plan breaks a rule, or belongs to another dataflow."""
