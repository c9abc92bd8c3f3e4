"""Squared coefficients of variation (SCV) of the internal flows of a network. Approximate.

Source: W. Whitt, "The Queueing Network Analyzer" (QNA), Bell System Technical Journal 62(9), 1983, section 4. Each flow
is treated as a renewal process with two parameters. The SCVs of the arrivals at the stations solve a linear system:

    join        ca2_j = 1 - w_j + w_j sum_i (lambda_ij / lambda_j) c2_ij
                w_j = 1 / (1 + 4 (1 - rho_j)^2 (v_j - 1)),   v_j = 1 / sum_i (lambda_ij / lambda_j)^2
    departure   cd2_i = 1 + (1 - rho_i^2) (ca2_i - 1) + rho_i^2 (max(cs2_i, 0.2) - 1) / sqrt(k_i)
    split       c2_ij = p cd2_i + 1 - p    for a gain p <= 1, at random

A gain above 1 creates batches. A row becomes g rows; the fractional part f of g is the probability of one more. The
index of dispersion is c2_ij = g cd2_i + f (1 - f) / g, which equals the split for g <= 1. QNA removes immediate
feedback (a station that sends to itself) before the analysis. This implementation keeps it as a loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from penstock.models.network.traffic import Traffic
from penstock.models.queueing.errors import ModelError, not_negative


def propagated_scv(
    traffic: Traffic,
    *,
    service_scv: Mapping[str, float],
    utilisation: Mapping[str, float],
    servers: Mapping[str, int],
    external_scv: float = 1.0,
) -> dict[str, float]:
    """Return the SCV of the interarrival times at each station. A utilisation above 1 counts as 1.

    >>> from penstock.models.network.traffic import TrafficStream, solve_traffic
    >>> streams = [TrafficStream(source=None, target="a"), TrafficStream(source="a", target="b")]
    >>> traffic = solve_traffic(["a", "b"], streams, external_per_s=1.0)
    >>> ones, halves = {"a": 1, "b": 1}, {"a": 0.5, "b": 0.5}
    >>> propagated_scv(traffic, service_scv=ones, utilisation=halves, servers=ones)
    {'a': 1.0, 'b': 1.0}
    """
    not_negative("the SCV of the external arrivals", external_scv)
    names, n = traffic.names, len(traffic.names)
    for parameter, values in (("service_scv", service_scv), ("utilisation", utilisation), ("servers", servers)):
        if missing := [name for name in names if name not in values]:
            raise ModelError(f"{parameter} lacks {', '.join(missing)}. Give a value for each station.")
    matrix, constant = np.eye(n), np.ones(n)
    for j in range(n):
        if traffic.visits[j] == 0:
            continue
        flows = traffic.visits * traffic.gains[:, j]
        shares = flows / traffic.visits[j]
        outside = traffic.entry[j] / traffic.visits[j]
        rho_j = min(1.0, utilisation[names[j]])
        v = 1.0 / (float((shares**2).sum()) + outside**2)
        w = 1.0 / (1.0 + 4.0 * (1.0 - rho_j) ** 2 * (v - 1.0))
        constant[j] = 1.0 - w + w * outside * _split(traffic.entry[j], 0.0, external_scv)[1]
        for i in np.flatnonzero(flows):
            rho2 = min(1.0, utilisation[names[i]]) ** 2
            at_departure = rho2 * (1.0 + (max(service_scv[names[i]], 0.2) - 1.0) / math.sqrt(servers[names[i]]))
            slope, offset = _split(traffic.gains[i, j], 1.0 - rho2, at_departure)
            matrix[j, i] -= w * shares[i] * slope
            constant[j] += w * shares[i] * offset
    solved = np.linalg.solve(matrix, constant)
    if not np.all(solved > -1e-9):
        worst = names[int(np.argmin(solved))]
        raise ModelError(
            f"The SCV of the flow into '{worst}' is not finite, because a loop amplifies its batches. "
            "Measure the SCVs and give them as arrival_scv."
        )
    return {name: max(0.0, float(value)) for name, value in zip(names, solved, strict=True)}


def _split(gain: float, slope: float, offset: float) -> tuple[float, float]:
    """Return (slope, offset) of c2 = slope ca2 + offset behind a split with this gain, from those of cd2."""
    fraction = gain - math.floor(gain)
    return gain * slope, gain * offset + (fraction * (1.0 - fraction) / gain if gain else 0.0)
