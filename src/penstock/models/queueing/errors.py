"""Errors of the models, and checks of their parameters.

Each check returns its value, or raises a ModelError that names the parameter, the value and the requirement.
"""

from __future__ import annotations

import math

from penstock.dataflow.errors import PenstockError


class ModelError(PenstockError):
    """A parameter of a model is invalid."""


class UnstableError(ModelError):
    """There is no steady state: rows arrive faster than they are served."""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def positive(what: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ModelError(f"{_sentence(what)} is {value}. It must be a finite number above 0.")
    return value


def not_negative(what: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ModelError(f"{_sentence(what)} is {value}. It must be a finite number, 0 or more.")
    return value


MAX_LOAD = 1e7  # servers kept busy by one operator
MAX_SCV = 1e6
RATES_PER_S = (1e-60, 1e60)  # the squares and cubes of their inverses are finite


def checked_load(load: float) -> float:
    """Check the offered load: arrival rate times work per row. Larger loads would take hours to compute."""
    if not 0 <= load <= MAX_LOAD:
        raise ModelError(
            f"The offered load (arrival rate over service rate) is {load:g}. It must be between 0 and {MAX_LOAD:,.0f} "
            "busy servers. Check the units of the rates."
        )
    return load


def service_rate(per_s: float) -> float:
    minimum, maximum = RATES_PER_S
    if not minimum <= positive("the service rate of one server (rows/s)", per_s) <= maximum:
        raise ModelError(
            f"The service rate of one server is {per_s:g} rows/s. It must be between {minimum:g} and {maximum:g}. "
            "Check its unit."
        )
    return per_s


def scv(what: str, value: float) -> float:
    if not_negative(what, value) > MAX_SCV:
        raise ModelError(f"{_sentence(what)} is {value:g}. It must be at most {MAX_SCV:,.0f}. Measure it again.")
    return value


def count(what: str, value: int, minimum: int = 1) -> int:
    if value != int(value) or value < minimum:
        raise ModelError(f"{_sentence(what)} is {value}. It must be a whole number, {minimum} or more.")
    return int(value)


def distinguishable(a: float, b: float, digits: int = 6) -> tuple[str, str]:
    """Format two numbers with enough digits to tell them apart, unless they are equal.

    >>> distinguishable(6.6666666, 8.0), distinguishable(7.9999998, 8.0), distinguishable(8.0, 8.0)
    (('6.66667', '8'), ('7.9999998', '8'), ('8', '8'))
    """
    for more in range(digits, 17):
        pair = f"{a:.{more}g}", f"{b:.{more}g}"
        if a == b or pair[0] != pair[1]:
            return pair
    return repr(a), repr(b)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "processor"), counted(2, "processor")
    ('1 processor', '2 processors')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def probability(what: str, value: float) -> float:
    if not 0 < value < 1:
        raise ModelError(f"{_sentence(what)} is {value}. It must be between 0 and 1, for example 0.95.")
    return value
