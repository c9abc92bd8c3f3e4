from __future__ import annotations

import math
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.models.queueing import GIGk, MMk, ModelError
from tests.support.queue_simulation import station_latencies_s

scvs = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0, 1.3, 2.0, 5.0])


@given(st.floats(0.05, 50), st.integers(0, 10), st.sampled_from(["whitt", "drs"]))
@settings(deadline=None)
def test_scvs_of_one_are_mmk(load: float, more: int, approximation: str) -> None:
    general = GIGk(arrival_per_s=load, service_per_s=1.0, approximation=approximation)  # type: ignore[arg-type]
    exact = MMk(arrival_per_s=load, service_per_s=1.0)
    k = exact.least_stable() + more
    assert general.mean_s(k) == pytest.approx(exact.mean_s(k), rel=1e-10)
    assert general.variance_s2(k) == pytest.approx(exact.variance_s2(k), rel=1e-9)
    for p in (0.5, 0.95, 0.999):
        assert general.quantile_s(k, p) == pytest.approx(exact.quantile_s(k, p), rel=1e-6)
    assert list(islice(general.drops_s(k), 4)) == pytest.approx(list(islice(exact.drops_s(k), 4)), rel=1e-9)


@given(st.floats(0.02, 80), scvs, scvs, st.sampled_from(["whitt", "drs"]))
@settings(deadline=None)
def test_decreasing_convex_and_drops_are_differences(load: float, ca2: float, cs2: float, approximation: str) -> None:
    """The greedy planner requires convexity; for Whitt's formula it is observed, not proven."""
    queue = GIGk(
        arrival_per_s=load,
        service_per_s=1.0,
        arrival_scv=ca2,
        service_scv=cs2,
        approximation=approximation,  # type: ignore[arg-type]
    )
    k = queue.least_stable()
    drops = list(islice(queue.drops_s(k), 30))
    means = [m.mean_s for m in islice(queue.moments(k), 31)]
    assert drops == pytest.approx(-np.diff(means), rel=1e-6, abs=1e-12 * means[0])
    assert all(a >= b * (1 - 1e-9) and b >= 0 for a, b in pairwise(drops))


@given(st.floats(0.1, 0.95), st.floats(0.0, 1.0))
@settings(deadline=None)
def test_one_server_poisson_is_near_pollaczek_khinchine(rho: float, cs2: float) -> None:
    exact = 1.0 + rho / (1 - rho) * (1 + cs2) / 2
    assert GIGk(arrival_per_s=rho, service_per_s=1.0, service_scv=cs2).mean_s(1) == pytest.approx(exact, rel=0.02)


@given(st.integers(1, 20), scvs, scvs)
@settings(deadline=None)
def test_heavy_traffic(k: int, ca2: float, cs2: float) -> None:
    """For rho -> 1, E[W] (1 - rho) k mu -> (ca2 + cs2) / 2 for all distributions (Kingman, Koellerstroem)."""
    rho = 1 - 1e-6
    queue = GIGk(arrival_per_s=rho * k, service_per_s=1.0, arrival_scv=ca2, service_scv=cs2)
    assert (queue.mean_s(k) - 1.0) * (1 - rho) * k == pytest.approx((ca2 + cs2) / 2, rel=1e-3, abs=1e-6)


def test_many_servers_leave_only_the_service() -> None:
    queue = GIGk(arrival_per_s=5.0, service_per_s=1.0, arrival_scv=3.0, service_scv=0.25)
    assert queue.mean_s(500) == pytest.approx(1.0)
    assert queue.variance_s2(500) == pytest.approx(0.25)


def test_nothing_varies() -> None:
    clockwork = GIGk(arrival_per_s=5.0, service_per_s=2.0, arrival_scv=0.0, service_scv=0.0)
    assert clockwork.mean_s(3) == 0.5
    assert clockwork.variance_s2(3) == 0.0
    assert clockwork.quantile_s(3, 0.999) == pytest.approx(0.5)
    assert next(clockwork.drops_s(3)) == 0.0


CASES = [  # arrivals, servers, ca2, cs2, tolerance of the mean and of p95
    (2.4, 3, 0.25, 0.25, 0.03, 0.05),
    (4.0, 5, 1.0, 0.0, 0.02, 0.06),
    (2.0, 3, 0.0, 1.0, 0.04, 0.03),
    (3.2, 4, 2.0, 1.0, 0.06, 0.06),
    (8.5, 10, 0.5, 2.0, 0.06, 0.08),
    (0.8, 1, 0.5, 0.5, 0.05, 0.06),
]


@pytest.mark.parametrize(("arrivals", "k", "ca2", "cs2", "mean_off", "tail_off"), CASES)
def test_simulation(arrivals: float, k: int, ca2: float, cs2: float, mean_off: float, tail_off: float) -> None:
    seen = station_latencies_s(np.random.default_rng(11), arrivals, 1.0, k, ca2, cs2, 200_000)
    queue = GIGk(arrival_per_s=arrivals, service_per_s=1.0, arrival_scv=ca2, service_scv=cs2)
    assert queue.mean_s(k) == pytest.approx(seen.mean(), rel=mean_off)
    assert queue.quantile_s(k, 0.95) == pytest.approx(np.quantile(seen, 0.95), rel=tail_off)
    assert queue.variance_s2(k) == pytest.approx(seen.var(), rel=0.25)


@pytest.mark.parametrize(
    ("arrivals", "k", "ca2", "cs2"), [(1.8, 3, 0.25, 0.25), (2.0, 3, 0.0, 1.0), (7.0, 10, 0.25, 0.5)]
)
def test_whitt_is_nearer_than_eq_5_at_low_variability(arrivals: float, k: int, ca2: float, cs2: float) -> None:
    waited = station_latencies_s(np.random.default_rng(3), arrivals, 1.0, k, ca2, cs2, 150_000).mean() - 1.0
    both = {
        name: GIGk(
            arrival_per_s=arrivals,
            service_per_s=1.0,
            arrival_scv=ca2,
            service_scv=cs2,
            approximation=name,  # type: ignore[arg-type]
        ).mean_s(k)
        - 1.0
        for name in ("whitt", "drs")
    }
    assert abs(both["whitt"] - waited) < 0.6 * abs(both["drs"] - waited)


def test_bad_input() -> None:
    with pytest.raises(ModelError, match=r"SCV of the service times is -0\.5"):
        GIGk(arrival_per_s=1.0, service_per_s=1.0, service_scv=-0.5)
    with pytest.raises(ModelError, match="SCV of the times between arrivals is inf"):
        GIGk(arrival_per_s=1.0, service_per_s=1.0, arrival_scv=math.inf)
    with pytest.raises(ModelError, match="must be 'whitt' or 'drs'"):
        GIGk(arrival_per_s=1.0, service_per_s=1.0, approximation="best")  # type: ignore[arg-type]
