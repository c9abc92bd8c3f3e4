"""Loads of the arena: rates over two hours as a share of the peak."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

LENGTH_S = 7200.0
STEP_S = 30.0

Rates = tuple[tuple[float, float], ...]  # (second, share of the peak) in ascending order

# Requests per hour on 23 June 1998 at the site of the football World Cup (Arlitt and Jin, Internet Traffic Archive).
WORLD_CUP_DAY = (
    *(1146833, 1056098, 899006, 873495, 799634, 825559, 920275, 971802, 993784, 913840, 871053, 979586),
    *(1408544, 1851965, 5277335, 6863399, 4200077, 2304387, 1946406, 3181902, 4373116, 3215454, 1714844, 1401196),
)


def _sampled(share: Callable[[float], float]) -> Rates:
    return tuple((at_s, share(at_s)) for at_s in (i * STEP_S for i in range(int(LENGTH_S / STEP_S))))


def flat(seed: int) -> Rates:
    return ((0.0, 1.0),)


def step(seed: int) -> Rates:
    return ((0.0, 0.5), (2400.0, 1.0), (4800.0, 0.5))


def ramp(seed: int) -> Rates:
    return _sampled(lambda at_s: min(1.0, 0.3 + 0.7 * at_s / 5400.0))


def spike(seed: int) -> Rates:
    return ((0.0, 0.4), (3300.0, 1.0), (3900.0, 0.4))


def sine(seed: int) -> Rates:
    return _sampled(lambda at_s: 0.65 + 0.35 * math.sin(2.0 * math.pi * at_s / 3600.0))


def noise(seed: int) -> Rates:
    """Return independent rates with a coefficient of variation of 0.12, cut at the peak."""
    draws = random.Random(seed)
    return _sampled(lambda at_s: min(1.0, 0.72 * math.exp(draws.gauss(0.0, 0.12))))


def day(seed: int) -> Rates:
    """Return the World Cup day in two hours."""
    peak, hour_s = max(WORLD_CUP_DAY), LENGTH_S / 24

    def share(at_s: float) -> float:
        hour, part = divmod(at_s / hour_s, 1.0)
        first, second = WORLD_CUP_DAY[int(hour)], WORLD_CUP_DAY[min(23, int(hour) + 1)]
        return (first + (second - first) * part) / peak

    return _sampled(share)


def bursts(seed: int) -> Rates:
    """Return bursts of one to four minutes whose heights are Pareto distributed with exponent 1.5."""
    draws = random.Random(seed)
    shares = [0.3] * int(LENGTH_S / STEP_S)
    at = 0
    while (at := at + max(1, round(draws.expovariate(1.0 / 20.0)))) < len(shares):
        height = min(0.7, 0.1 * draws.paretovariate(1.5))
        for step_at in range(at, min(len(shares), at + draws.randint(2, 8))):
            shares[step_at] = max(shares[step_at], 0.3 + height)
    return tuple((i * STEP_S, share) for i, share in enumerate(shares))


LOADS: dict[str, Callable[[int], Rates]] = {
    "flat": flat,
    "step": step,
    "ramp": ramp,
    "spike": spike,
    "sine": sine,
    "noise": noise,
    "day": day,
    "bursts": bursts,
}


def scaled(rates: Rates, peak_per_s: float) -> Sequence[tuple[float, float]]:
    """Return the rates in rows/s."""
    return tuple((at_s, share * peak_per_s) for at_s, share in rates)
