"""Random draws in compiled loops: one stream of random numbers for each purpose.

Each operator's service times, each source's gaps and so on have a stream of their own (splitmix64: Steele, Lea and
Flood, OOPSLA 2014), so that two plans with one seed see the same arrivals: their difference is not noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.distributions import (
    EMPIRICAL,
    EXPONENTIAL,
    FIXED,
    GAMMA,
    GEOMETRIC,
    HYPEREXPONENTIAL,
    LOGNORMAL,
    POISSON,
    UNIFORM,
    Distribution,
    count_variance,
)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53
_LARGE = 30  # from so many on a count is drawn from the normal law of its mean and variance
_CLEAR = 5.0  # so many standard deviations from 0 that hardly any of the law is cut off there
_WIDE = 9.0  # a variance against which rounding to a whole number moves no mean


LAW = np.dtype(
    [
        ("kind", np.int64),
        ("a", float),
        ("b", float),
        ("c", float),
        ("first", np.int64),  # into the values, of an empirical one
        ("size", np.int64),
        ("mean", float),
        ("variance", float),
        ("count_variance", float),  # of the draw taken as a count
    ]
)


def laws(distributions: Iterable[Distribution]) -> tuple[np.ndarray, np.ndarray]:
    """(records of LAW, one for each; the values of all empirical ones)."""
    records, values = [], list[float]()
    for one in distributions:
        code = one.code()
        moments = (one.mean, one.scv * one.mean**2, count_variance(one))
        records.append((code.kind, code.a, code.b, code.c, len(values), len(code.table), *moments))
        values += code.table
    return np.array(records, LAW), np.array(values, float)


def streams(seed: int, count: int) -> np.ndarray:
    """Where each stream starts: far apart, and a later one does not move the earlier ones."""
    return np.array([np.random.SeedSequence([seed, i]).generate_state(1, np.uint64)[0] for i in range(count)])


@compiled
def uniform(rng: np.ndarray, stream: int) -> float:
    """In (0, 1]: its logarithm is finite."""
    z = rng[stream] + _GOLDEN
    rng[stream] = z
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    z = z ^ (z >> _S31)
    return (float(z >> _S11) + 1.0) * _UNIT


@compiled
def normal(rng: np.ndarray, stream: int) -> float:
    radius = math.sqrt(-2.0 * math.log(uniform(rng, stream)))
    return radius * math.cos(2.0 * math.pi * uniform(rng, stream))


@compiled
def gamma(rng: np.ndarray, stream: int, shape: float) -> float:
    """Of scale 1. Marsaglia and Tsang, ACM TOMS 26(3), 2000."""
    boost = 1.0
    if shape < 1.0:
        boost = uniform(rng, stream) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(rng, stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(uniform(rng, stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v


@compiled
def poisson(rng: np.ndarray, stream: int, mean: float) -> float:
    if mean >= _LARGE:
        return max(0.0, math.floor(mean + math.sqrt(mean) * normal(rng, stream) + 0.5))
    least, product, count = math.exp(-mean), uniform(rng, stream), 0.0
    while product > least:
        product *= uniform(rng, stream)
        count += 1.0
    return count


@compiled
def binomial(rng: np.ndarray, stream: int, trials: int, p: float) -> int:
    if p <= 0.0 or trials <= 0:
        return 0
    if p >= 1.0:
        return trials
    rare = min(p, 1.0 - p)
    if trials * rare > _LARGE:
        drawn = trials * rare + math.sqrt(trials * rare * (1.0 - rare)) * normal(rng, stream)
        count = min(trials, max(0, math.floor(drawn + 0.5)))
    else:  # from one to the next there is a geometric gap: a draw for each of them, and not for each trial
        count, per_log = 0, 1.0 / math.log1p(-rare)
        last = np.floor(math.log(uniform(rng, stream)) * per_log)  # as a float: a gap may be beyond whole numbers
        while last < trials:
            count += 1
            last += 1.0 + np.floor(math.log(uniform(rng, stream)) * per_log)
    return count if p <= 0.5 else trials - count


@compiled
def draw(laws: np.ndarray, values: np.ndarray, law: int, rng: np.ndarray, stream: int) -> float:
    kind = laws[law].kind
    if kind == EXPONENTIAL:
        return float(-laws[law].a * math.log(uniform(rng, stream)))
    if kind == FIXED:
        return float(laws[law].a)
    if kind == GAMMA:
        return float(gamma(rng, stream, laws[law].a) * laws[law].b)
    if kind == HYPEREXPONENTIAL:
        mean = laws[law].b if uniform(rng, stream) <= laws[law].a else laws[law].c
        return float(-mean * math.log(uniform(rng, stream)))
    if kind == LOGNORMAL:
        return math.exp(laws[law].a + laws[law].b * normal(rng, stream))
    if kind == UNIFORM:
        return float(laws[law].a + (laws[law].b - laws[law].a) * uniform(rng, stream))
    if kind == EMPIRICAL:
        at = min(laws[law].size - 1, int(uniform(rng, stream) * laws[law].size))
        return float(values[laws[law].first + at])
    if kind == POISSON:
        return poisson(rng, stream, laws[law].a)
    if kind == GEOMETRIC and laws[law].a > 1.0:
        return 1.0 + math.floor(math.log(uniform(rng, stream)) / math.log(1.0 - 1.0 / laws[law].a))
    return 1.0


@compiled
def draw_count(laws: np.ndarray, values: np.ndarray, law: int, rng: np.ndarray, stream: int) -> int:
    """floor(x), and one more with the probability of the fraction."""
    x = draw(laws, values, law, rng, stream)
    whole = math.floor(x)
    if x > whole and uniform(rng, stream) <= x - whole:
        whole += 1
    return int(whole)


@compiled
def sum_of_counts(laws: np.ndarray, values: np.ndarray, law: int, rng: np.ndarray, stream: int, n: int) -> int:
    """Of n draws as counts; many of them by the normal law of the sum, where neither 0 nor whole numbers bend it."""
    if laws[law].kind == FIXED:
        whole = math.floor(laws[law].a)
        return int(n * whole) + binomial(rng, stream, n, laws[law].a - whole)
    if laws[law].kind == POISSON:
        return int(poisson(rng, stream, n * laws[law].a))
    mean, variance = n * laws[law].mean, n * laws[law].count_variance
    if variance <= 0.0:
        return int(mean + 0.5)
    if n > _LARGE and variance > _WIDE and mean > _CLEAR * math.sqrt(variance):
        return int(max(0.0, mean + math.sqrt(variance) * normal(rng, stream) + 0.5))
    total = 0
    for _ in range(n):
        total += draw_count(laws, values, law, rng, stream)
    return total


@compiled
def sum_of_times(laws: np.ndarray, values: np.ndarray, law: int, rng: np.ndarray, stream: int, n: int) -> float:
    """Of n draws; many of them by the gamma law of the sum's mean and variance: exact for exponential and gamma."""
    if laws[law].kind == FIXED:
        return float(n * laws[law].a)
    if n > _LARGE:
        mean, variance = n * laws[law].mean, n * laws[law].variance
        if variance <= 0.0:
            return float(mean)
        return float(gamma(rng, stream, mean * mean / variance) * variance / mean)
    total = 0.0
    for _ in range(n):
        total += draw(laws, values, law, rng, stream)
    return total
