from __future__ import annotations

import math
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from penstock.models.queueing import MMk, ModelError, UnstableError
from tests.support.queue_simulation import station_latencies_s

loads = st.tuples(st.floats(0.01, 60), st.floats(0.05, 20), st.integers(0, 12))


def test_gross_and_harris() -> None:
    """Example of the clinic: 6 patients per hour, 3 doctors with 3 patients per hour; 28.9 minutes, P(wait) = 4/9."""
    clinic = MMk(arrival_per_s=6.0, service_per_s=3.0)
    assert clinic.mean_s(3) == pytest.approx(0.481481, abs=1e-6)


@given(st.floats(0.01, 0.99))
@settings(deadline=None)
def test_one_server_is_mm1(rho: float) -> None:
    queue, rate = MMk(arrival_per_s=rho, service_per_s=1.0), 1.0 - rho
    assert queue.mean_s(1) == pytest.approx(1 / rate, rel=1e-9)
    assert queue.variance_s2(1) == pytest.approx(1 / rate**2, rel=1e-9)
    for p in (0.5, 0.9, 0.999):
        assert queue.quantile_s(1, p) == pytest.approx(-math.log(1 - p) / rate, rel=1e-8)


def test_many_servers_leave_only_the_service() -> None:
    queue = MMk(arrival_per_s=5.0, service_per_s=2.0)
    assert queue.mean_s(200) == pytest.approx(0.5, rel=1e-12)
    assert queue.variance_s2(200) == pytest.approx(0.25, rel=1e-12)
    assert queue.quantile_s(200, 0.99) == pytest.approx(math.log(100) / 2, rel=1e-9)


@given(loads)
@settings(deadline=None)
def test_decreasing_convex_and_drops_are_differences(load: tuple[float, float, int]) -> None:
    arrival, service, more = load
    queue = MMk(arrival_per_s=arrival, service_per_s=service)
    k = queue.least_stable() + more
    means = [m.mean_s for m in islice(queue.moments(k), 12)]
    drops = list(islice(queue.drops_s(k), 11))
    assert all(a >= b >= 0 for a, b in pairwise(drops))
    assert drops == pytest.approx(-np.diff(means), rel=1e-6, abs=1e-12 * means[0])


@given(loads, st.floats(0.1, 0.999))
@settings(deadline=None)
def test_quantile_and_miss_are_inverse(load: tuple[float, float, int], p: float) -> None:
    arrival, service, more = load
    queue = MMk(arrival_per_s=arrival, service_per_s=service)
    k = queue.least_stable() + more
    assert queue.miss_probability(k, queue.quantile_s(k, p)) == pytest.approx(1 - p, rel=1e-6)


@given(loads)
@settings(deadline=None, max_examples=30)
def test_moments_are_those_of_the_law(load: tuple[float, float, int]) -> None:
    """E[T] and E[T^2] by integration of P(T > t), also for theta = mu."""
    arrival, service, more = load
    queue = MMk(arrival_per_s=arrival, service_per_s=service)
    k = queue.least_stable() + more
    if k - arrival / service < 0.05:
        return  # the tail spans hundreds of service times, and the quadrature fails
    scale = queue.quantile_s(k, 0.999999)

    def integral(power: int) -> float:
        def inside(t: float) -> float:
            return power * t ** (power - 1) * queue.miss_probability(k, t)

        return sum(integrate.quad(inside, a * scale, b * scale)[0] for a, b in ((0, 0.1), (0.1, 1), (1, 6)))

    assert integral(1) == pytest.approx(queue.mean_s(k), rel=1e-6)
    assert integral(2) - integral(1) ** 2 == pytest.approx(queue.variance_s2(k), rel=1e-5)


def test_where_theta_equals_mu() -> None:
    """k mu - lambda = mu: waiting and service have the same rate, and the usual formula divides by zero."""
    queue = MMk(arrival_per_s=2.0, service_per_s=1.0)
    t, c = 1.7, 4 / 9
    expected = (1 - c) * math.exp(-t) + c * stats.gamma(2).sf(t)
    assert queue.miss_probability(3, t) == pytest.approx(expected, rel=1e-12)


def test_simulation() -> None:
    queue = MMk(arrival_per_s=4.2, service_per_s=1.0)
    seen = station_latencies_s(np.random.default_rng(5), 4.2, 1.0, 5, 1, 1, 200_000)
    assert seen.mean() == pytest.approx(queue.mean_s(5), rel=0.03)
    assert seen.var() == pytest.approx(queue.variance_s2(5), rel=0.08)
    for p in (0.5, 0.95, 0.99):
        assert np.quantile(seen, p) == pytest.approx(queue.quantile_s(5, p), rel=0.05)


def test_no_arrivals() -> None:
    idle = MMk(arrival_per_s=0.0, service_per_s=4.0)
    assert idle.least_stable() == 1
    assert idle.mean_s(1) == 0.25
    assert next(idle.drops_s(1)) == 0.0


def test_bad_input() -> None:
    with pytest.raises(ModelError, match=r"arrival rate \(rows/s\) is -1"):
        MMk(arrival_per_s=-1.0, service_per_s=1.0)
    with pytest.raises(ModelError, match=r"service rate of one server .* is nan"):
        MMk(arrival_per_s=1.0, service_per_s=math.nan)
    with pytest.raises(UnstableError, match="receives 900 rows/s but 3 servers serve 750; it needs at least 4"):
        MMk(arrival_per_s=900.0, service_per_s=250.0).mean_s(3)
    with pytest.raises(ModelError, match="quantile is 95"):
        MMk(arrival_per_s=1.0, service_per_s=2.0).quantile_s(1, 95)
