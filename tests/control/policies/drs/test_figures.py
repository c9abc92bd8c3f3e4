"""The direction of every row of docs/papers/drs-results.md, with fixed seeds."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.app_costs import OperatorCost
from benchmarks.models_queueing import three
from benchmarks.papers import drs, drs_costs, drs_runs
from penstock.measure.smoothing import MovingAverage
from penstock.planning.processors import assign_processors

APPLICATIONS = list(drs_runs.ALLOCATIONS)


@pytest.mark.long
@pytest.mark.parametrize("application", APPLICATIONS)
def test_the_recommended_allocation_is_the_best_of_six(application: str) -> None:
    """Figure 6: the published allocation has the lowest mean and nearly the lowest standard deviation."""
    recommended, *others = drs_runs.ALLOCATIONS[application]
    best = drs_runs.passive(application, recommended)
    assert best.latency.sd_s is not None
    for counts in others:
        run = drs_runs.passive(application, counts)
        assert run.latency.sd_s is not None
        assert run.latency.mean_s > 0.98 * best.latency.mean_s, counts
        assert run.latency.sd_s > 0.9 * best.latency.sd_s, counts


@pytest.mark.long
@pytest.mark.parametrize("application", APPLICATIONS)
def test_predicted_and_measured_latencies_have_the_same_order(application: str) -> None:
    """Figure 7. An allocation whose backlog grows by the model has the highest latencies."""
    runs = [drs_runs.passive(application, counts) for counts in drs_runs.ALLOCATIONS[application]]
    stable = [run for run in runs if run.predicted_s is not None]
    growing = [run.latency.mean_s for run in runs if run.predicted_s is None]
    predicted, measured = [run.predicted_s for run in stable], [run.latency.mean_s for run in stable]
    if len(stable) > 2:
        assert np.corrcoef(predicted, measured)[0, 1] > 0.5
    assert min(growing, default=np.inf) > min(measured)


@pytest.mark.long
@pytest.mark.parametrize("application", APPLICATIONS)
def test_one_change_at_the_earliest_time_leads_to_the_best_allocation(application: str) -> None:
    """Figure 8: T_ra of 14 minutes counts from the start."""
    best, *others = drs_runs.STARTS[application]
    for start in others:
        run = drs_runs.rebalanced(application, start)
        assert run.changed_min == 14, start
        assert sum(run.final) <= drs_runs.SLOTS
        assert np.abs(np.subtract(run.final, best)).sum() <= 2, start  # rates are measured, so one slot may differ


@pytest.mark.parametrize("w", [3, 6])
def test_slots_follow_long_term_changes_and_the_smaller_window_is_faster(w: int) -> None:
    """Figure 9: changes come about w minutes after each change of the rate."""
    changes = drs_runs.stepped(drs_runs.LONG, w, 40)
    assert [reason for _, reason, _ in changes[:3]] == ["shortage", "release", "shortage"]
    minutes = [minute for minute, _, _ in changes[:3]]
    assert minutes[0] - 6 == pytest.approx(w, abs=1.5)
    assert minutes[1] - 21 == pytest.approx(w, abs=1.5)
    assert 34 < minutes[2] <= 34 + w
    slots = [sum(counts) for _, _, counts in changes[:3]]
    assert slots[0] > sum(drs_runs.STEP_START) >= slots[1] and slots[2] > slots[0]


def test_only_the_smaller_window_reacts_to_a_short_burst() -> None:
    assert drs_runs.stepped(drs_runs.SHORT, 6, 25) == []
    assert [reason for _, reason, _ in drs_runs.stepped(drs_runs.SHORT, 3, 25)] == ["shortage", "release"]


def test_adding_executors_costs_more_than_removing_them() -> None:
    added, removed = (
        np.mean([drs_runs.cost_of_change(adding=adding, seed=seed) for seed in range(5)]) for adding in (True, False)
    )
    assert added > 3 * max(removed, 0.0)
    assert added > 0.1


@pytest.mark.parametrize("rate", [5.0, 6.0])
def test_gigk_predicts_bulk_arrivals_better_than_mmk(rate: float) -> None:
    """Figure 10. M/M/k underestimates (3:3:1), and more so at the higher rate."""
    for counts in drs.BULK_COUNTS:
        run = drs_runs.bulk(rate, counts)
        assert abs(run.predicted_s["gigk"] - run.measured_s) < abs(run.predicted_s["mmk"] - run.measured_s)
    missed = [
        drs_runs.bulk(each, (3, 3, 1)).measured_s - drs_runs.bulk(each, (3, 3, 1)).predicted_s["mmk"]
        for each in (5.0, 6.0)
    ]
    assert missed[1] > missed[0] > 0.0


def test_each_model_chooses_what_it_chose_in_the_paper() -> None:
    """Figure 10 (b): M/M/k prefers (3:3:1), GI/G/k the allocation that is measured to be better."""
    two, three_ = (drs_runs.bulk(6.0, counts) for counts in drs.BULK_COUNTS)
    assert two.measured_s < three_.measured_s
    assert two.chosen == {"mmk": (3, 3, 1), "gigk": (2, 4, 1)}


def cost(operator: str, seconds: float, scv: float, emitted: tuple[int, ...]) -> OperatorCost:
    return OperatorCost(operator=operator, rows=1_000, seconds_per_row=seconds, scv=scv, emitted=emitted)


# As measured once, with round numbers.
COSTS = {
    "video": [cost("extract", 5.6e-3, 0.01, (0, 40, 60, 80, 120)), cost("match", 9.3e-6, 0.5, (0, 0, 1))],
    "patterns": [
        cost("generate", 7e-6, 0.5, (0, 4, 8, 12, 16)),
        cost("detect", 1.5e-6, 1.2, (0,)),
        cost("tell", 1.8e-6, 2.0, (0,)),
    ],
}


@pytest.mark.long
@pytest.mark.parametrize("application", APPLICATIONS)
def test_with_measured_costs_the_recommended_allocation_is_one_of_the_best(application: str) -> None:
    """Figures 6 and 7 with the costs of the real functions.

    The model adds up the latencies of all features of a frame, which is why its choice is not always the best one for
    the latency of a single result.
    """
    behaviour = drs_costs.behaviour_of(application, COSTS[application])
    busy = [operator.service_s.mean for operator in behaviour.operators.values()]
    assert busy[0] / busy[1] == pytest.approx(
        COSTS[application][0].seconds_per_row / COSTS[application][1].seconds_per_row
    )
    allocation = drs_costs.recommended(application, COSTS[application])
    assert sum(allocation.counts) == drs_runs.SLOTS
    assert allocation.rank <= 2
    assert allocation.measured_s[allocation.counts] < np.median(list(allocation.measured_s.values()))
    assert allocation.predicted_s[allocation.counts] is not None


def calls(function: Callable[[], object]) -> int:
    """Return the number of Python function calls, which does not depend on the load of the machine."""
    count = 0

    def on_call(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_call)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_scaling_grows_with_the_slots_and_at_most_linearly() -> None:
    """Table II. The steps are counted instead of timed."""
    network = three()
    made = [calls(lambda k=k: assign_processors(network, k)) for k in drs.TABLE_2_MS]  # type: ignore[misc]
    assert made == sorted(made)
    for less, more in itertools.pairwise(made):
        assert more <= 2.1 * less  # twice the slots


def test_the_measurement_does_not_depend_on_the_slots() -> None:
    behaviour = drs_runs.behaviour_of("video")
    made = set()
    for counts, slots in (((10, 11, 1), 22), ((80, 100, 12), 192)):
        engine = drs_runs.engine_on("video", behaviour, counts, slots=slots)
        engine.start()
        windows = []
        for _ in range(3):
            engine.advance(60.0)
            windows.append(engine.observe())
        made.add(calls(lambda seen=tuple(windows): MovingAverage(3).smoothed(seen)))  # type: ignore[misc]
    assert len(made) == 1
