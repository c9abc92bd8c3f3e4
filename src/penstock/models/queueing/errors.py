"""What a model refuses, and the checks that say so in one sentence."""

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


MOST_LOAD = 1e7  # servers kept busy by one operator
MOST_SCV = 1e6
RATES_PER_S = (1e-60, 1e60)  # squares and cubes of their inverses are finite


def checked_load(load: float) -> float:
    """Arrivals times the work of a row. What is out of all proportion would be computed for hours, not refused."""
    if not 0 <= load <= MOST_LOAD:
        raise ModelError(
            f"the offered load (arrivals over service) is {load:g}; it must lie between 0 and {MOST_LOAD:,.0f}, "
            "the servers that it keeps busy: check the units of the rates"
        )
    return load


def service_rate(per_s: float) -> float:
    least, most = RATES_PER_S
    if not least <= positive("the service rate of one server (rows/s)", per_s) <= most:
        raise ModelError(
            f"the service rate of one server is {per_s:g} rows/s; it must lie between {least:g} and {most:g}: "
            "check its unit"
        )
    return per_s


def scv(what: str, value: float) -> float:
    if not_negative(what, value) > MOST_SCV:
        raise ModelError(f"{what} is {value:g}; it must be at most {MOST_SCV:,.0f}: measure it again")
    return value


def count(what: str, value: int, least: int = 1) -> int:
    if value != int(value) or value < least:
        raise ModelError(f"{what} is {value}; it must be a whole number, {least} or more")
    return int(value)


def told_apart(a: float, b: float, digits: int = 6) -> tuple[str, str]:
    """Both numbers, with so many digits that they look alike only where they are.

    >>> told_apart(6.6666666, 8.0), told_apart(7.9999998, 8.0), told_apart(8.0, 8.0)
    (('6.66667', '8'), ('7.9999998', '8'), ('8', '8'))
    """
    for more in range(digits, 17):
        pair = f"{a:.{more}g}", f"{b:.{more}g}"
        if a == b or pair[0] != pair[1]:
            return pair
    return repr(a), repr(b)


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "processor"), counted(2, "processor")
    ('1 processor', '2 processors')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def probability(what: str, value: float) -> float:
    if not 0 < value < 1:
        raise ModelError(f"{what} is {value}; it must lie between 0 and 1, as 0.95 does")
    return value
