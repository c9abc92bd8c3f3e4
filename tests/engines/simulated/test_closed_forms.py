"""Row-by-row mode against the closed forms of queueing theory, within narrow confidence intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import poisson

from penstock.engines.simulated import (
    Behaviour,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    Gamma,
    Geometric,
    Hyperexponential,
    Lognormal,
    OperatorBehaviour,
    Queue,
    SimulatedEngine,
    SourceBehaviour,
    Uniform,
)
from penstock.models.queueing import MMk
from tests.support.simulated_flows import chain, looped, mean_latency_s, plan_for


def one_station(arrival_per_s: float, service: Distribution, replicas: int, **options: object) -> SimulatedEngine:
    flow = chain("work")
    source = SourceBehaviour(
        rates=((0.0, arrival_per_s),),
        interarrival=options.pop("interarrival", Exponential(mean=1.0)),  # type: ignore[arg-type]
        batch=options.pop("batch", Fixed(value=1.0)),  # type: ignore[arg-type]
    )
    operator = OperatorBehaviour(service_s=service, **options)  # type: ignore[arg-type]
    behaviour = Behaviour(operators={"work": operator}, sources={"source": source})
    return SimulatedEngine(flow, behaviour, plan=plan_for(flow, work=replicas), seed=11)


def assert_mean_latency(
    engine: SimulatedEngine, expected_s: float, *, window_s: float = 20_000.0, within: float = 0.03
) -> None:
    mean, half = mean_latency_s(engine, warm_up_s=window_s, window_s=window_s)
    assert half < within * expected_s, "the run is too short for a narrow confidence interval"
    assert mean == pytest.approx(expected_s, abs=half)


@pytest.mark.parametrize(("replicas", "arrival_per_s"), [(1, 0.6), (3, 2.0), (10, 8.0)])
def test_mmk(replicas: int, arrival_per_s: float) -> None:
    engine = one_station(arrival_per_s, Exponential(mean=1.0), replicas)
    assert_mean_latency(engine, MMk(arrival_per_s=arrival_per_s, service_per_s=1.0).mean_s(replicas))


def mdk_wait_s(arrival_per_s: float, service_s: float, servers: int) -> float:
    """N. U. Prabhu's series for M/D/k: E[W] = D sum_i [P(N_i >= ik) - (k / a) P(N_i > ik)], N_i Poisson of mean i a."""
    load = arrival_per_s * service_s
    i = np.arange(1, 400)
    terms = poisson.sf(i * servers - 1, i * load) - servers / load * poisson.sf(i * servers, i * load)
    return service_s * float(terms.sum())


def test_the_mdk_series_equals_pollaczek_khinchine_for_one_server() -> None:
    assert mdk_wait_s(0.7, 1.0, 1) == pytest.approx(0.7 / (2 * 0.3))


@pytest.mark.parametrize(("replicas", "arrival_per_s"), [(1, 0.7), (4, 3.2)])
def test_mdk(replicas: int, arrival_per_s: float) -> None:
    engine = one_station(arrival_per_s, Fixed(value=1.0), replicas)
    assert_mean_latency(engine, 1.0 + mdk_wait_s(arrival_per_s, 1.0, replicas))


@pytest.mark.parametrize(
    "service",
    [
        Gamma(mean=0.5, scv=0.25),
        Gamma(mean=0.5, scv=2.0),
        Hyperexponential(mean=0.5, scv=4.0),
        Lognormal(mean=0.5, scv=0.5),
        Uniform(low=0.1, high=0.9),
        Empirical(values=(0.2, 0.4, 0.9)),
    ],
)
def test_mg1_with_any_service_time(service: Distribution) -> None:
    """Pollaczek and Khinchine: E[T] = s + lambda s^2 (1 + scv) / (2 (1 - rho))."""
    rate, s = 1.2, service.mean
    expected = s + rate * s**2 * (1 + service.scv) / (2 * (1 - rate * s))
    assert_mean_latency(one_station(rate, service, 1), expected, within=0.06)


def test_dm1() -> None:
    """GI/M/1: E[T] = 1 / (mu (1 - x)) with x = exp(-mu (1 - x) / lambda) for equidistant arrivals."""
    x = 0.5
    for _ in range(200):
        x = math.exp(-(1 - x) / 0.8)
    engine = one_station(0.8, Exponential(mean=1.0), 1, interarrival=Fixed(value=7.0))
    assert_mean_latency(engine, 1 / (1 - x), window_s=40_000.0)


def test_batch_arrivals() -> None:
    """M^X/M/1: E[T] = (1 + E[X (X - 1)] / (2 E[X])) / (mu (1 - rho)); geometric: E[X (X - 1)] = 2 m (m - 1)."""
    m, rho = 3.0, 0.6
    engine = one_station(rho, Exponential(mean=1.0), 1, batch=Geometric(mean=m))
    assert_mean_latency(engine, (1 + (m - 1)) / (1 - rho), window_s=40_000.0, within=0.06)


def test_one_queue_per_replica_is_k_times_mm1() -> None:
    engine = one_station(2.4, Exponential(mean=1.0), 4, queue=Queue.REPLICA)
    assert_mean_latency(engine, 1 / (1 - 0.6))


def test_a_jackson_network_with_a_loop() -> None:
    """a (M/M/2) -> b (M/M/3), and 40 % of the rows of b return: each operator has 1 / 0.6 visits per row."""
    flow = looped()
    behaviour = Behaviour(
        operators={
            "a": OperatorBehaviour(service_s=Exponential(mean=1.0)),
            "b": OperatorBehaviour(service_s=Exponential(mean=2.0), routes={"a": 0.4, "out": 0.6}),
        },
        sources={"source": SourceBehaviour(rates=((0.0, 0.66),))},
    )
    through = 0.66 / 0.6
    a = MMk(arrival_per_s=through, service_per_s=1.0).mean_s(2)
    b = MMk(arrival_per_s=through, service_per_s=0.5).mean_s(3)
    engine = SimulatedEngine(flow, behaviour, plan=plan_for(flow, a=2, b=3), seed=3)
    assert_mean_latency(engine, (a + b) / 0.6, window_s=40_000.0)


def test_latency_quantiles_of_mm1_are_exponential() -> None:
    engine = one_station(0.5, Exponential(mean=1.0), 1)
    engine.start()
    engine.advance(400_000.0)
    latency = engine.observe().latency
    assert latency is not None
    for quantile, seconds in ((0.5, latency.p50_s), (0.95, latency.p95_s), (0.99, latency.p99_s)):
        assert seconds == pytest.approx(-math.log(1 - quantile) / 0.5, rel=0.03)
