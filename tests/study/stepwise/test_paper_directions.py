"""Which method is better and what grows, as in figures 11 to 14 of Liu et al. (2017), in simulation with seed 0."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.papers.stepwise import (
    REAL,
    TARGET_PER_S,
    first_four_gains,
    lead_over_baselines,
    nodes_for,
    of_depth,
    on_six_nodes,
    sentiment_with,
    stela_on,
    word_count_on,
)
from benchmarks.papers.stepwise_study import study
from benchmarks.papers.storm_flows import linear

pytestmark = pytest.mark.long

MAX_ROUNDS = 12
SLOTS = 12
TWEET_MS = 0.94 * 8 / 6  # a tweet takes this time, of which parsing and splitting take 0.3 each and counting 0.4


def best_per_s(name: str) -> float:
    """Return the tweets/s of the best plan on 12 slots.

    Word count: an exhaustive search in closed form, in which tasks are placed in turn and share the core of their slot.
    """
    if name == "TSA":
        # 96 tasks, eight per slot: (9, 35, 5, 18, 4, 4, 9, 5, 5, 1, 1). The 35 tasks that detect the language in 0.4 ms
        # limit the rate. Nine operators divide 94 tasks in 10^11 ways, so the best division was computed by hand.
        return 35 / 8 / 0.4e-3
    seconds = [share * TWEET_MS / 1000.0 for share in (0.3, 0.3, 0.4)]
    best = 0.0
    for tasks in itertools.product(range(2, 15), range(2, 15), range(3, 19)):
        if min(count / cost_s for count, cost_s in zip(tasks, seconds, strict=True)) <= best:
            continue
        slots = np.arange(sum(tasks)) % SLOTS
        shares = 1.0 / np.bincount(slots, minlength=SLOTS)[slots]
        speeds = np.bincount(np.repeat(np.arange(3), tasks), weights=shares) / seconds
        best = max(best, float(speeds.min()))
    return best


@pytest.mark.parametrize("name", REAL)
def test_figure_11_the_profiler_ends_higher_than_both_baselines(name: str) -> None:
    _, result, _, by_stela, _ = on_six_nodes(name)
    assert len(result.rounds) <= MAX_ROUNDS
    assert result.meets_target
    assert lead_over_baselines(name) > 0.05
    # The first plan follows from the features, so it is better than one task per operator.
    assert result.rounds[0].rows_per_s > 1.2 * by_stela[0].rows_per_s


@pytest.mark.parametrize("name", REAL)
def test_figure_11_the_profiler_ends_near_the_optimum(name: str) -> None:
    application, result, *_ = on_six_nodes(name)
    assert result.rows_per_s * application.tweets_per_row >= 0.95 * best_per_s(name)


@pytest.mark.parametrize("name", ["linear", "star", "diamond"])
def test_figure_11_the_graphs_use_the_cores_after_a_few_rounds(name: str) -> None:
    """All cores together are an upper bound that no plan exceeds."""
    application, result, *_ = on_six_nodes(name)
    assert len(result.rounds) <= MAX_ROUNDS
    assert result.meets_target
    assert 0.95 <= result.rows_per_s * application.core_s_per_row / SLOTS <= 1.02


@pytest.mark.parametrize("name", ["WC", "SWC"])
def test_figure_11_the_third_step_is_omitted_on_printed_terms(name: str) -> None:
    """The latency of each operator, without waiting, is within twice its minimum."""
    printed = on_six_nodes(name)[2]
    assert all(row.step == "platform" for row in printed.rounds)
    assert "within 2 times their minimum" in printed.reason


def test_figure_11_the_first_four_rounds_gain_more_than_those_of_the_threshold() -> None:
    gains = [first_four_gains(name) for name in REAL]
    assert sum(gain[0] for gain in gains) > 2.0 * sum(gain[2] for gain in gains)


def test_figure_11_waiting_costs_throughput_or_rounds() -> None:
    waiting, without = (on_six_nodes(name)[1] for name in ("SWC", "WC"))
    assert len(waiting.rounds) > len(without.rounds)
    assert waiting.rows_per_s < 1.05 * without.rows_per_s


def test_figure_11_linear_doubles_from_one_to_two_tasks() -> None:
    """The first round is calibrated, 958.6 rows/s; the second one is a prediction of the printed 1,876."""
    rounds = study(linear(), 6, as_printed=True, max_rounds=2).rounds
    assert rounds[0].rows_per_s == pytest.approx(958.6, rel=0.05)
    assert dict(rounds[1].plan.replicas) == {"op2": 2, "op3": 2, "op4": 2}
    assert rounds[1].rows_per_s == pytest.approx(1876.0, rel=0.05)


def test_figure_12_a_deeper_dataflow_gains_less() -> None:
    gains = [of_depth(depth).rows_per_s / of_depth(depth).rounds[0].rows_per_s for depth in (6, 12)]
    assert gains[0] > gains[1] > 1.0


def test_figure_13_more_nodes_help_and_the_profiler_needs_fewer_than_stela() -> None:
    ours = {nodes: 10.0 * word_count_on(nodes).rows_per_s for nodes in (2, 4, 6)}
    theirs = {nodes: 10.0 * stela_on(nodes)[-1].rows_per_s for nodes in (2, 4, 6)}
    assert ours[2] < ours[4] < ours[6]
    assert all(ours[nodes] > theirs[nodes] for nodes in ours)
    assert nodes_for(TARGET_PER_S, ours) == 4
    assert nodes_for(TARGET_PER_S, theirs) == 6


def test_figure_14_a_small_slice_starts_higher_and_a_large_one_lower() -> None:
    default, fine, coarse = (sentiment_with(as_printed=True, slice_=slice_) for slice_ in (0.3, 0.1, 0.5))
    assert coarse.rounds[0].rows_per_s < default.rounds[0].rows_per_s < fine.rounds[0].rows_per_s
    assert coarse.rows_per_s < 0.9 * default.rows_per_s


def test_figure_14_a_short_latency_target_costs_throughput() -> None:
    printed = [sentiment_with(as_printed=True, latency_s=seconds) for seconds in (0.3, 0.7)]
    assert printed[0].rows_per_s < 0.95 * printed[1].rows_per_s
    assert any(row.change == "throttle" for row in printed[0].rounds)
    assert sentiment_with(latency_s=0.3).rows_per_s < sentiment_with().rows_per_s
