"""The contract of station models: the properties that the planners require."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from penstock.models.microbatch import MicroBatch
from penstock.models.queueing import GIGk, MMk, UnstableError
from penstock.models.queueing.station import StationModel

Any4 = MMk | GIGk | MicroBatch

STATIONS: dict[str, Any4] = {
    "mmk": MMk(arrival_per_s=7.3, service_per_s=2.0),
    "mmk, one server does": MMk(arrival_per_s=0.2, service_per_s=2.0),
    "gigk, whitt, regular": GIGk(arrival_per_s=7.3, service_per_s=2.0, arrival_scv=0.2, service_scv=0.5),
    "gigk, whitt, bursty": GIGk(arrival_per_s=40.0, service_per_s=2.0, arrival_scv=4.0, service_scv=1.5),
    "gigk, drs": GIGk(arrival_per_s=7.3, service_per_s=2.0, arrival_scv=0.2, service_scv=2.0, approximation="drs"),
    "micro-batch": MicroBatch(arrival_per_s=2600.0, batch_s=0.1, row_s=0.001, replica_s=0.01, slots=30),
    "micro-batch, no end of slots": MicroBatch(arrival_per_s=2600.0, batch_s=0.1, row_s=0.001, replica_s=0.01),
}
every = pytest.mark.parametrize("station", STATIONS.values(), ids=STATIONS.keys())


def least(station: StationModel) -> int:
    k = station.least_stable()
    assert k is not None
    return k


@every
def test_least_stable_is_where_capacity_passes_the_arrivals(station: Any4) -> None:
    k = least(station)
    assert station.capacity_per_s(k) > station.arrival_per_s
    assert k == 1 or station.capacity_per_s(k - 1) <= station.arrival_per_s
    assert np.isfinite(station.mean_s(k))
    if k > 1:
        with pytest.raises(UnstableError, match=f"it needs at least {k}"):
            station.mean_s(k - 1)


@every
def test_gains_decrease_to_zero(station: Any4) -> None:
    drops = list(islice(station.drops_s(least(station)), 25))
    useful = [drop for drop in drops if drop > 0]
    assert drops[: len(useful)] == useful  # no gain after the first loss
    assert all(a >= b for a, b in pairwise(useful))


@every
def test_drops_and_moments_are_consistent_from_any_k(station: Any4) -> None:
    k = least(station)
    for start in (k, k + 1, k + 7):
        moments = list(islice(station.moments(start), 10))
        assert [m.mean_s for m in moments] == pytest.approx([station.mean_s(start + i) for i in range(10)])
        assert [m.variance_s2 for m in moments] == pytest.approx([station.variance_s2(start + i) for i in range(10)])
        drops = list(islice(station.drops_s(start), 9))
        assert drops == pytest.approx(-np.diff([m.mean_s for m in moments]), rel=1e-6, abs=1e-12)
        assert all(0 <= m.wait_variance_s2 <= m.variance_s2 for m in moments)


@every
def test_another_rate_is_the_same_station(station: Any4) -> None:
    k = least(station)
    slower = station.at_rate(station.arrival_per_s / 2)
    assert slower.arrival_per_s == station.arrival_per_s / 2
    assert slower.at_rate(station.arrival_per_s) == station
    assert slower.mean_s(k) < station.mean_s(k)
    assert least(slower) <= k


@every
def test_quantiles_rise_and_agree_with_misses_and_mean(station: Any4) -> None:
    k = least(station) + 1
    levels = (0.5, 0.9, 0.95, 0.99, 0.999)
    quantiles = [station.quantile_s(k, p) for p in levels]
    assert all(a < b for a, b in pairwise(quantiles))
    assert [station.miss_probability(k, q) for q in quantiles] == pytest.approx([1 - p for p in levels], rel=1e-5)
    assert station.miss_probability(k, 0.0) == 1.0
    # E[T] is the mean of the quantiles, and Var[T] is the mean of their squared deviations.
    inner = [station.quantile_s(k, p) for p in (np.arange(200) + 0.5) / 200]
    assert np.mean(inner) == pytest.approx(station.mean_s(k), rel=0.01)
    assert np.var(inner) == pytest.approx(station.variance_s2(k), rel=0.1)
