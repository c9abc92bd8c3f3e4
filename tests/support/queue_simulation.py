"""Queues simulated row by row, as a reference for the formulas. The simulation does not use them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import numpy as np


def times(rng: np.random.Generator, mean_s: float, scv: float, size: int) -> np.ndarray:
    """Draw from a gamma distribution for an SCV below 1 (constant for 0), otherwise a balanced hyperexponential one."""
    if scv == 0:
        return np.full(size, mean_s)
    if scv <= 1:
        return rng.gamma(1 / scv, mean_s * scv, size)
    p = (1 + np.sqrt((scv - 1) / (scv + 1))) / 2
    first = rng.random(size) < p
    return rng.exponential(1, size) * np.where(first, mean_s / (2 * p), mean_s / (2 * (1 - p)))


def station_latencies_s(
    rng: np.random.Generator,
    arrival_per_s: float,
    service_per_s: float,
    servers: int,
    ca2: float,
    cs2: float,
    rows: int,
) -> np.ndarray:
    """Simulate first come, first served with `servers` servers; the first tenth is warm-up and left out."""
    arrivals = np.cumsum(times(rng, 1 / arrival_per_s, ca2, rows)).tolist()
    services = times(rng, 1 / service_per_s, cs2, rows).tolist()
    free = [0.0] * servers
    out = []
    for arrival, service in zip(arrivals, services, strict=True):
        done = max(arrival, free[0]) + service
        heapq.heapreplace(free, done)
        out.append(done - arrival)
    return np.array(out[rows // 10 :])


def network_latencies_s(
    rng: np.random.Generator,
    external_per_s: float,
    service_per_s: list[float],
    servers: list[int],
    enters: int,
    children: Callable[[int], list[int]],
    rows: int,
) -> np.ndarray:
    """Simulate a network: Poisson rows enter at one station, and each served row creates `children(station)`.

    Service is exponential. The latency of a row is the sum of the times that it and all derived rows spend at stations.
    """
    serial = itertools.count()
    events: list[tuple[float, int, int, int, float]] = []  # time, order, station (-1: enters), row, arrival time
    queues: list[list[tuple[int, float]]] = [[] for _ in servers]
    heads = [0] * len(servers)
    busy = [0] * len(servers)
    total = np.zeros(rows)
    for row, at in enumerate(np.cumsum(rng.exponential(1 / external_per_s, rows)).tolist()):
        events.append((at, next(serial), -1, row, at))
    heapq.heapify(events)

    def begin(station: int, row: int, came: float, now: float) -> None:
        busy[station] += 1
        done = now + rng.standard_exponential() / service_per_s[station]
        heapq.heappush(events, (done, next(serial), station, row, came))

    def arrive(station: int, row: int, now: float) -> None:
        if busy[station] < servers[station]:
            begin(station, row, now, now)
        else:
            queues[station].append((row, now))

    while events:
        now, _, station, row, came = heapq.heappop(events)
        if station < 0:
            arrive(enters, row, now)
            continue
        total[row] += now - came
        busy[station] -= 1
        if heads[station] < len(queues[station]):
            next_row, next_came = queues[station][heads[station]]
            heads[station] += 1
            begin(station, next_row, next_came, now)
        for child in children(station):
            arrive(child, row, now)
    return total[rows // 10 : -rows // 20]
