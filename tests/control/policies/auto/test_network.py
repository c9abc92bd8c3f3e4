"""The model of policy auto against closed forms and exhaustive search."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from penstock.control.policies.auto.allocations import allocations
from penstock.control.policies.auto.learning import weights
from penstock.control.policies.auto.network import QueueNetwork
from penstock.control.policies.auto.replay import Loads, Target, replay


def network(
    work_s: list[float],
    *,
    visits: list[float] | None = None,
    weight: list[float] | None = None,
    micro_batch: bool = False,
    limit: float = math.inf,
    fixed_s: float = 0.1,
    hot: float = 0.0,
    slots: int = 1000,
) -> QueueNetwork:
    size = len(work_s)
    names = tuple(f"op{at}" for at in range(size))
    ones = np.ones(size)
    return QueueNetwork(
        names=names,
        members=tuple((name,) for name in names),
        stations=tuple((name,) for name in names),
        node=np.arange(size),
        cuts=frozenset(),
        micro_batch=micro_batch,
        available_slots=slots,
        weight=np.array(weight or ones),
        visits=np.array(visits or ones),
        first_visits=np.array(visits or ones),
        row_s=np.array(work_s),
        error=0.0 * ones,
        service_scv=ones,
        arrival_scv=ones,
        limit=limit * ones,
        width=ones,
        hot_share=hot * ones,
        fixed_s=fixed_s * ones,
        stages=ones,
        single_tasks=0.0 * ones,
        task_s=0.02,
    )


def steady(rate: float, *, window_s: float = 10.0) -> Loads:
    return Loads(rates_per_s=np.full(30, rate), step_s=10.0, window_s=window_s)


def latency_s(model: QueueNetwork, counts: list[float], rate: float) -> float:
    return replay(model, np.array(counts, float), steady(rate), None, correction=1.0).latency_s


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.9])
def test_one_replica_is_an_mm1_queue(rho: float) -> None:
    """E[T] = s / (1 - rho)."""
    assert latency_s(network([0.01]), [1.0], rho / 0.01) == pytest.approx(0.01 / (1.0 - rho), rel=0.01)


def test_many_replicas_wait_as_erlang_c_says() -> None:
    """M/M/5 at 4 busy servers: C(5, 4) = 0.5541 (tables of Erlang C), W = C s / (k - a)."""
    exact = 1.0 + 0.5541 / (5.0 - 4.0)
    assert latency_s(network([1.0]), [5.0], 4.0) == pytest.approx(exact, rel=0.05)  # Sakasegawa's approximation


def test_a_batch_settles_at_the_closed_form() -> None:
    """D* = A / (1 - lambda C) with A = 0.1 + 0.02 x 4 and lambda C = 0.5; a row stays 1.5 D*."""
    assert latency_s(network([0.002], micro_batch=True), [4.0], 1000.0) == pytest.approx(1.5 * 0.18 / 0.5, rel=1e-6)


def test_a_hot_key_limits_the_servers() -> None:
    """One replica gets half of the rows, so at most two replicas' worth of rows are processed at once."""
    model = network([0.01], hot=0.5)
    assert np.isinf(model.fewest(200.0)[0])
    assert model.fewest(149.0)[0] == 3  # 3 / (0.5 x 2 + 1) = 1.5 replicas work at once


def test_a_backlog_grows_with_the_missing_capacity() -> None:
    """At 120 rows/s and a capacity of 100, 20 rows/s pile up: after 100 s a row waits 2000 / 100 s."""
    model = network([0.01])
    predicted = model.predict(np.ones(1), np.full(10, 120.0), step_s=10.0, window_s=10.0)
    assert predicted.backlog_s == pytest.approx(19.0, rel=1e-6)  # the mean of the last step, from 18 to 20 s


def test_replicas_that_share_slots_are_slower() -> None:
    crowded = network([0.01, 0.01], slots=1)
    assert latency_s(crowded, [1.0, 1.0], 10.0) == pytest.approx(2 * 0.02 / (1 - 0.2), rel=0.02)


def test_the_mean_over_a_window_varies_as_the_theory_of_mm1_says() -> None:
    """The asymptotic variance of the mean number in an M/M/1 system over t seconds is 2 rho (1 + rho) / ((1 - rho)^4 mu t).

    In heavy traffic the mean wait over a long window varies as much, divided by lambda^2.
    """
    rho, service_s, window_s = 0.9, 0.01, 1000.0
    predicted = network([service_s]).predict(np.ones(1), np.full(3, rho / service_s), step_s=10.0, window_s=window_s)
    number = 2.0 * rho * (1.0 + rho) / (1.0 - rho) ** 4 * service_s / window_s
    assert predicted.window_variance_s2[0] == pytest.approx(number / (rho / service_s) ** 2, rel=0.5)


@pytest.mark.parametrize("micro_batch", [False, True])
def test_allocations_are_the_best_of_all_with_as_many_slots(micro_batch: bool) -> None:
    model = network([0.03, 0.011, 0.002], visits=[1.0, 1.0, 1.0], micro_batch=micro_batch)
    path = allocations(model, 100.0, most_slots=12)
    for step in range(len(path)):
        counts, slots = path.counts(step), path.slots(step)
        latency_s = model.node_s(counts[:, None], 100.0).sum()
        every = [
            np.array(other, float)
            for other in product(range(1, slots), repeat=3)
            if sum(other) == slots and (np.array(other) >= model.fewest(100.0)).all()
        ]
        best = min(model.node_s(other[:, None], 100.0).sum() for other in every)
        assert latency_s <= best * (1.0 + 1e-9)


def test_a_plan_with_more_slots_is_late_less_often() -> None:
    model, target = network([0.05]), Target(seconds=0.1)
    shares = [replay(model, np.array([k]), steady(100.0), target, correction=1.0).late for k in (5.0, 6.0, 7.0, 9.0)]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.5 and shares[-1] < 0.01


def test_the_quantile_of_an_exponential_sojourn() -> None:
    """The time in an M/M/1 system is exponential: its 95 % quantile is ln 20 times the mean."""
    target = Target(seconds=1.0, quantile=0.95)
    latency_s = replay(network([0.01]), np.ones(1), steady(70.0), target, correction=1.0).latency_s
    assert latency_s == pytest.approx(math.log(20.0) * 0.01 / 0.3, rel=0.1)


@pytest.mark.parametrize("loops", [False, True])
def test_weights_are_the_sum_over_all_paths(loops: bool) -> None:
    """u = w + S w + S^2 w + ...: a row of a sink has the time of the stations that are n steps before it."""
    draws = np.random.default_rng(5)
    for size in (1, 2, 7):
        shares = draws.random((size, size)) * (draws.random((size, size)) < 0.6) * 0.9 / size
        shares = shares if loops else np.triu(shares, 1)
        leaving = draws.dirichlet(np.ones(size))
        expected, term = np.zeros(size), leaving
        for _ in range(200):
            expected, term = expected + term, shares @ term
        assert weights(shares, leaving) == pytest.approx(expected, rel=1e-9)
