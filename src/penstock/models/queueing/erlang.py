"""Erlang's loss and delay formulas, by recursion on the inverse of the loss probability.

Source: A. K. Erlang 1917; the recursion is in texts on teletraffic, e.g. Cooper, Introduction to Queueing Theory. Let
x(k) = 1 / B(k) for k servers and offered load a. Then

    x(0) = 1,   x(k) = 1 + x(k-1) k / a

All terms are positive, so nothing cancels: each step loses a few units in the last place, and 100,000 servers lose less
than 1e-10. Computing `(a^k)/k!` directly overflows at k of about 150. If B is below the smallest double, x is infinite
and B is 0.

Below k = a, each step multiplies an earlier error by k/a, and n steps by less than exp(-n^2 / 2a). The last 10 sqrt(a)
steps therefore determine x to the last digit when they start from the overload limit x = a / (a - k). A thousand times
the load takes about thirty times the steps.
"""

from __future__ import annotations

import math
from functools import lru_cache

from penstock.models.queueing.errors import UnstableError, count, not_negative


@lru_cache(maxsize=8192)  # planners evaluate the same station and count repeatedly
def inverse_loss(servers: int, offered_load: float) -> float:
    """Return x(k) = 1 / B(k, a) for a > 0. The recursion may continue: x(k+1) = 1 + x(k) (k+1) / a."""
    a = offered_load
    skipped = max(0, int(min(servers, a) - _RELEVANT_STEPS * math.sqrt(a)))
    x = a / (a - skipped)
    # For k >= 2a, x at least doubles with each server, so 1,100 steps exceed the largest double.
    for k in range(skipped + 1, min(servers, int(2.0 * a) + 1100) + 1):
        x = 1.0 + x * k / a
    return x


_RELEVANT_STEPS = 10.0  # in units of sqrt(a): exp(-10^2 / 2) is below the last digit of a double


def erlang_b(servers: int, offered_load: float) -> float:
    """Return the probability that an arrival in M/M/c/c finds all servers busy and is lost.

    >>> round(erlang_b(servers=2, offered_load=1.0), 4)
    0.2
    """
    servers = count("the number of servers", servers, minimum=0)
    if not_negative("the offered load", offered_load) == 0:
        return 0.0 if servers else 1.0
    return 1.0 / inverse_loss(servers, offered_load)


def erlang_c(servers: int, offered_load: float) -> float:
    """Return the probability of waiting in M/M/c: C = B / (1 - rho (1 - B)) with B = Erlang B and rho = a/c.

    >>> round(erlang_c(servers=3, offered_load=2.0), 4)
    0.4444
    """
    servers = count("the number of servers", servers)
    if not_negative("the offered load", offered_load) >= servers:
        raise UnstableError(
            f"An offered load of {offered_load:g} on {servers} servers has no steady state. "
            f"It needs at least {int(offered_load) + 1} servers."
        )
    if offered_load == 0:
        return 0.0
    return delay_probability(servers, offered_load, inverse_loss(servers, offered_load))


def delay_probability(servers: int, offered_load: float, x: float) -> float:
    """Return Erlang C from x = 1/B: C = c / (x (c - a) + a)."""
    return servers / (x * (servers - offered_load) + offered_load)
