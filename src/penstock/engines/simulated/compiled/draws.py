"""Random draws in compiled loops: one stream of random numbers for each purpose.

Every operator has three streams (splitmix64; Steele, Lea and Flood, OOPSLA 2014), so two plans with one seed see the
same arrivals and service times, and a difference between them is not noise. Operator i uses

- distribution 2 i and stream 3 i for its service times; a source for the gaps between arrivals,
- distribution 2 i + 1 and stream 3 i + 1 for its rows out; a source for the rows that arrive together,
- stream 3 i + 2 for the choice of a replica or of a consumer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.records import Records, record
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
_LARGE = 30  # larger counts are drawn from a normal distribution with their mean and variance
_CLEAR = 5.0  # standard deviations between the mean and 0 at which truncation at 0 is negligible
_WIDE = 9.0  # variance at which rounding to whole numbers does not change the mean

DISTRIBUTION = record(
    kind=np.int64,
    a=float,
    b=float,
    c=float,
    first=np.int64,  # index of the first value of an empirical distribution
    size=np.int64,  # number of its values
    mean=float,
    variance=float,
    count_variance=float,  # variance of a draw that is rounded to a count
)


class Draws(NamedTuple):
    """Distributions and the state of the random streams, as compiled loops use them."""

    distributions: Records  # DISTRIBUTION records
    values: np.ndarray  # the values of all empirical distributions
    streams: np.ndarray  # state of each random stream


def new_draws(distributions: Sequence[Distribution], *, seed: int, streams: int) -> Draws:
    """Return the arrays of these distributions, and `streams` independent random streams.

    The start of a stream depends on the seed and its number only, not on how many streams there are.
    """
    records, values = [], list[float]()
    for distribution in distributions:
        code = distribution.code()
        moments = (distribution.mean, distribution.scv * distribution.mean**2, count_variance(distribution))
        records.append((code.kind, code.a, code.b, code.c, len(values), len(code.table), *moments))
        values += code.table
    starts = [np.random.SeedSequence([seed, i]).generate_state(1, np.uint64)[0] for i in range(streams)]
    return Draws(np.array(records, DISTRIBUTION), np.array(values, float), np.array(starts))


@compiled
def uniform(streams: np.ndarray, stream: int) -> float:
    """Draw from (0, 1], so that the logarithm is finite."""
    z = streams[stream] + _GOLDEN
    streams[stream] = z
    z = (z ^ (z >> _S30)) * _MIX1
    z = (z ^ (z >> _S27)) * _MIX2
    z = z ^ (z >> _S31)
    return (float(z >> _S11) + 1.0) * _UNIT


@compiled
def normal(streams: np.ndarray, stream: int) -> float:
    """Draw from the standard normal distribution (Box and Muller)."""
    radius = math.sqrt(-2.0 * math.log(uniform(streams, stream)))
    return radius * math.cos(2.0 * math.pi * uniform(streams, stream))


@compiled
def gamma(streams: np.ndarray, stream: int, shape: float) -> float:
    """Draw from the gamma distribution of scale 1 (Marsaglia and Tsang, ACM TOMS 26(3), 2000)."""
    boost = 1.0
    if shape < 1.0:
        boost = uniform(streams, stream) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = normal(streams, stream)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(uniform(streams, stream)) < 0.5 * x * x + d - d * v + d * math.log(v):
            return boost * d * v


@compiled
def poisson(streams: np.ndarray, stream: int, mean: float) -> float:
    """Draw from the Poisson distribution."""
    if mean >= _LARGE:
        return max(0.0, math.floor(mean + math.sqrt(mean) * normal(streams, stream) + 0.5))
    least, product, count = math.exp(-mean), uniform(streams, stream), 0.0
    while product > least:
        product *= uniform(streams, stream)
        count += 1.0
    return count


@compiled
def binomial(streams: np.ndarray, stream: int, trials: int, p: float) -> int:
    """Draw the number of successes in `trials` trials of probability `p`."""
    if p <= 0.0 or trials <= 0:
        return 0
    if p >= 1.0:
        return trials
    rare = min(p, 1.0 - p)
    if trials * rare > _LARGE:
        drawn = trials * rare + math.sqrt(trials * rare * (1.0 - rare)) * normal(streams, stream)
        count = min(trials, max(0, math.floor(drawn + 0.5)))
    else:  # successes are a geometric gap apart: this takes a draw per success instead of a draw per trial
        count, per_log = 0, 1.0 / math.log1p(-rare)
        last = np.floor(
            math.log(uniform(streams, stream)) * per_log
        )  # a float, because a gap may exceed 64-bit integers
        while last < trials:
            count += 1
            last += 1.0 + np.floor(math.log(uniform(streams, stream)) * per_log)
    return count if p <= 0.5 else trials - count


@compiled
def draw(draws: Draws, number: int, stream: int) -> float:
    """Draw from distribution `number`."""
    law, streams = draws.distributions[number], draws.streams
    kind = law.kind
    if kind == EXPONENTIAL:
        return float(-law.a * math.log(uniform(streams, stream)))
    if kind == FIXED:
        return float(law.a)
    if kind == GAMMA:
        return float(gamma(streams, stream, law.a) * law.b)
    if kind == HYPEREXPONENTIAL:
        mean = law.b if uniform(streams, stream) <= law.a else law.c
        return float(-mean * math.log(uniform(streams, stream)))
    if kind == LOGNORMAL:
        return math.exp(law.a + law.b * normal(streams, stream))
    if kind == UNIFORM:
        return float(law.a + (law.b - law.a) * uniform(streams, stream))
    if kind == EMPIRICAL:
        at = min(law.size - 1, int(uniform(streams, stream) * law.size))
        return float(draws.values[law.first + at])
    if kind == POISSON:
        return poisson(streams, stream, law.a)
    if kind == GEOMETRIC and law.a > 1.0:
        return 1.0 + math.floor(math.log(uniform(streams, stream)) / math.log(1.0 - 1.0 / law.a))
    return 1.0


@compiled
def draw_count(draws: Draws, number: int, stream: int) -> int:
    """Draw x and round it to a count: up with the probability of its fraction, else down."""
    x = draw(draws, number, stream)
    whole = math.floor(x)
    if x > whole and uniform(draws.streams, stream) <= x - whole:
        whole += 1
    return int(whole)


@compiled
def sum_of_counts(draws: Draws, number: int, stream: int, n: int) -> int:
    """Draw the sum of n counts.

    A large sum is drawn from the normal distribution of its mean and variance, unless truncation at 0 or rounding would
    distort it.
    """
    law, streams = draws.distributions[number], draws.streams
    if law.kind == FIXED:
        whole = math.floor(law.a)
        return int(n * whole) + binomial(streams, stream, n, law.a - whole)
    if law.kind == POISSON:
        return int(poisson(streams, stream, n * law.a))
    mean, variance = n * law.mean, n * law.count_variance
    if variance <= 0.0:
        return int(mean + 0.5)
    if n > _LARGE and variance > _WIDE and mean > _CLEAR * math.sqrt(variance):
        return int(max(0.0, mean + math.sqrt(variance) * normal(streams, stream) + 0.5))
    total = 0
    for _ in range(n):
        total += draw_count(draws, number, stream)
    return total


@compiled
def sum_of_times(draws: Draws, number: int, stream: int, n: int) -> float:
    """Draw the sum of n draws.

    The sum of many draws is drawn from the gamma distribution of its mean and variance. This is exact for exponential
    and gamma distributions.
    """
    law, streams = draws.distributions[number], draws.streams
    if law.kind == FIXED:
        return float(n * law.a)
    if n > _LARGE:
        mean, variance = n * law.mean, n * law.variance
        if variance <= 0.0:
            return float(mean)
        return float(gamma(streams, stream, mean * mean / variance) * variance / mean)
    total = 0.0
    for _ in range(n):
        total += draw(draws, number, stream)
    return total


@compiled
def service_seconds(draws: Draws, operator: int, rows: int) -> float:
    """Draw the service time of `rows` rows that an operator serves one after another."""
    return sum_of_times(draws, 2 * operator, 3 * operator, rows)


@compiled
def rows_of_arrivals(draws: Draws, source: int, arrivals: int) -> int:
    """Draw how many rows arrive at a source with that many arrivals."""
    return sum_of_counts(draws, 2 * source + 1, 3 * source + 1, arrivals)


@compiled
def choice_stream(operator: int) -> int:
    """Return the stream for the choice of a replica or consumer."""
    return 3 * operator + 2
