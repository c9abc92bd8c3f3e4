"""What a latency model refuses, and the checks that say so in one sentence."""

from __future__ import annotations

import math

from penstock.dataflow.errors import PenstockError


class ModelError(PenstockError):
    """A model was given a parameter that has no meaning."""


class UnstableError(ModelError):
    """There is no steady state: rows come faster than they are served."""


def positive(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ModelError(f"{what} is {value}; it must be a finite number above 0")
    return value


def not_negative(what: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ModelError(f"{what} is {value}; it must be a finite number, 0 or more")
    return value


def count(what: str, value: int, least: int = 1) -> int:
    if value != int(value) or value < least:
        raise ModelError(f"{what} is {value}; it must be a whole number, {least} or more")
    return int(value)


def probability(what: str, value: float) -> float:
    if not 0 < value < 1:
        raise ModelError(f"{what} is {value}; it must lie between 0 and 1, as 0.95 does")
    return value
