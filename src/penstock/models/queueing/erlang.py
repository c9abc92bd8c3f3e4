"""Erlang's loss and delay formulas, by recursion on the inverse of the loss probability.

Exact but for rounding: with x(k) = 1 / B(k),

    x(0) = 1,   x(k) = 1 + x(k-1) k / a        (all terms positive: nothing cancels)

each step loses a few units in the last place, so 100,000 servers lose less than 1e-10. `(a^k)/k!` itself overflows
from k of about 150. Where B is below the smallest double, x is infinite and B comes out as 0.

Below k = a each step shrinks what was wrong before it by k/a: after n steps by less than exp(-n^2 / 2a). So the last
10 sqrt(a) of them decide x to the last digit, from the overloaded start x = a / (a - k), and a thousand times the load
takes some thirty times the steps.

Source: A. K. Erlang 1917; the recursion is in any text on teletraffic, e.g. Cooper, Introduction to Queueing Theory.
"""

from __future__ import annotations

import math
from functools import lru_cache

from penstock.models.queueing.errors import UnstableError, count, not_negative


@lru_cache(maxsize=8192)  # a planner asks for the same station at the same count again and again
def inverse_loss(servers: int, offered_load: float) -> float:
    """x(k) = 1 / B(k, a); needs a > 0. The recursion goes on from here: x(k+1) = 1 + x(k) (k+1) / a."""
    a = offered_load
    skipped = max(0, int(min(servers, a) - _DECIDE * math.sqrt(a)))
    x = a / (a - skipped)
    # From k = 2a on x doubles with each server at least: 1,100 of them are past the largest double.
    for k in range(skipped + 1, min(servers, int(2.0 * a) + 1100) + 1):
        x = 1.0 + x * k / a
    return x


_DECIDE = 10.0  # exp(-10^2 / 2) is below the last digit of a double


def erlang_b(servers: int, offered_load: float) -> float:
    """Probability that an arrival finds all servers of M/M/c/c busy (and is lost).

    >>> round(erlang_b(servers=2, offered_load=1.0), 4)
    0.2
    """
    servers = count("the number of servers", servers, least=0)
    if not_negative("the offered load", offered_load) == 0:
        return 0.0 if servers else 1.0
    return 1.0 / inverse_loss(servers, offered_load)


def erlang_c(servers: int, offered_load: float) -> float:
    """Probability of waiting in M/M/c: C = B / (1 - rho (1 - B)), B Erlang-B, rho = a/c.

    >>> round(erlang_c(servers=3, offered_load=2.0), 4)
    0.4444
    """
    servers = count("the number of servers", servers)
    if not_negative("the offered load", offered_load) >= servers:
        raise UnstableError(
            f"an offered load of {offered_load:g} on {servers} servers has no steady state; "
            f"it needs at least {int(offered_load) + 1} servers"
        )
    if offered_load == 0:
        return 0.0
    return delay_probability(servers, offered_load, inverse_loss(servers, offered_load))


def delay_probability(servers: int, offered_load: float, x: float) -> float:
    """Erlang C from x = 1/B: C = c / (x (c - a) + a)."""
    return servers / (x * (servers - offered_load) + offered_load)
