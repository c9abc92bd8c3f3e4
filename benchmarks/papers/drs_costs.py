"""The two applications of the DRS paper in simulation, with costs that are measured in this process.

`benchmarks.app_costs` measures the mean and the variability of the cost of each operator and the rows that each row
causes. Chosen before any result was computed:

- All costs are multiplied by the factor that keeps 85 % of 22 slots busy at the rates of the paper. The machines and
  the frames of the paper are not known, so only the ratios of the costs are used.
- The last operators (`aggregate` and `report`) are aggregations of Spark, whose cost per row cannot be measured in one
  process. They take a hundredth of the slots.
- The generated messages are stationary, so that no pattern of a window of 50,000 changes. `detect` therefore emits one
  row per five rows, as in figures 6 to 8.
- Ten minutes per allocation, with the GI/G/k model: the features of a frame arrive at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations

from benchmarks.app_costs import OperatorCost, logo_costs, pattern_costs
from benchmarks.papers.drs_runs import (
    MINUTE_S,
    SLOTS,
    Counts,
    by_the_model,
    counts_of,
    decided,
    engine_on,
)
from penstock.apps import logos
from penstock.control.arena.scenarios import SCENARIOS
from penstock.control.policies.drs import Drs, DrsSettings, LeastLatency
from penstock.engines.simulated import (
    Behaviour,
    Empirical,
    Fixed,
    Gamma,
    OperatorBehaviour,
    SourceBehaviour,
)

LOAD, LAST_LOAD = 0.85, 0.01  # shares of the slots that are busy, in total and by the last operator
FRAMES, MESSAGES, WINDOW, THRESHOLD = 150, 20_000, 50_000, 2_000
RATES = {"video": 13.0, "patterns": 320.0}  # frames or messages per second
CHANGES = (0, 0, 0, 0, 1)  # rows that `detect` emits per row
STARTS: dict[str, Counts] = {"video": (19, 2, 1), "patterns": (11, 9, 2)}
MINUTES = 10


def measured(application: str) -> list[OperatorCost]:
    """Return the costs of an application in this process: logo detection with SIFT, patterns of the paper's window."""
    return logo_costs(FRAMES, "sift") if application == "video" else pattern_costs(MESSAGES, WINDOW, THRESHOLD)


def behaviour_of(application: str, costs: Sequence[OperatorCost], seed: int = 0) -> Behaviour:
    """Return the behaviour with these costs, in proportion to each other."""
    _, published = SCENARIOS[application]()
    known = {cost.operator: cost for cost in costs}
    first, second, last = published.operators
    a, b = known[first], known[second]
    emitted = CHANGES if application == "patterns" else b.emitted
    selectivity = sum(emitted) / len(emitted)
    loop = 1.0 / (1.0 - selectivity) if application == "patterns" else 1.0
    rows = {first: RATES[application], second: RATES[application] * a.selectivity * loop}
    rows[last] = rows[second] * selectivity
    factor = (LOAD - LAST_LOAD) * SLOTS / sum(rows[cost.operator] * cost.seconds_per_row for cost in (a, b))
    operators = {
        first: _operator(a, factor, a.emitted),
        second: _operator(b, factor, emitted),
        last: OperatorBehaviour(service_s=Gamma(mean=LAST_LOAD * SLOTS / max(rows[last], 1e-9), scv=1.0)),
    }
    if application == "video":
        sources = {
            "frames": SourceBehaviour(rates=logos.frame_rates(60 * MINUTES, seed), interarrival=Fixed(value=1.0))
        }
    else:
        sources = {
            name: SourceBehaviour(rates=((0.0, RATES[application] / len(published.sources)),))
            for name in published.sources
        }
    return published.replace(operators=operators, sources=sources)


def _operator(cost: OperatorCost, factor: float, emitted: Sequence[int]) -> OperatorBehaviour:
    scv = cost.scv or 0.0
    mean = factor * cost.seconds_per_row
    return OperatorBehaviour(
        service_s=Gamma(mean=mean, scv=scv) if scv > 0 else Fixed(value=mean),
        selectivity=Empirical(values=tuple(map(float, emitted))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """The allocation that DRS recommends, and the measured and predicted mean latency of it and of its neighbours."""

    counts: Counts
    measured_s: dict[Counts, float]
    predicted_s: dict[Counts, float | None]  # by the model, without the learned correction

    @property
    def rank(self) -> int:
        """Return the place of the recommended allocation by measured latency; 1 is the best."""
        return 1 + sum(latency < self.measured_s[self.counts] for latency in self.measured_s.values())


def recommended(application: str, costs: Sequence[OperatorCost], seed: int = 0) -> Recommended:
    """Run DRS passively on a start allocation, then run the allocation that it recommends and its neighbours."""
    behaviour = behaviour_of(application, costs, seed)
    best, _, _ = _run(application, behaviour, STARTS[application], seed)
    measured_s, predicted_s = {}, {}
    for counts in (best, *neighbours(best)):
        _, measured_s[counts], predicted_s[counts] = _run(application, behaviour, counts, seed)
    return Recommended(counts=best, measured_s=measured_s, predicted_s=predicted_s)


def neighbours(counts: Counts) -> list[Counts]:
    """Return the allocations that differ by one moved slot.

    >>> neighbours((3, 2, 1))
    [(2, 3, 1), (2, 2, 2), (4, 1, 1), (3, 1, 2)]
    """
    moves = []
    for source, target in permutations(range(3), 2):
        moved = list(counts)
        moved[source] -= 1
        moved[target] += 1
        if moved[source] > 0:
            moves.append((moved[0], moved[1], moved[2]))
    return moves


def _run(application: str, behaviour: Behaviour, counts: Counts, seed: int) -> tuple[Counts, float, float | None]:
    """Return the recommended allocation, and the measured and predicted latency of the given one."""
    policy = Drs(DrsSettings(goal=LeastLatency(max_slots=SLOTS), queue="gigk"))
    engine = engine_on(application, behaviour, counts, seed=seed)
    rows, windows = decided(engine, policy, windows=MINUTES, window_s=MINUTE_S, smoothed=MINUTES - 1, mode="recommend")
    last = rows[-1]
    replicas: Mapping[str, int] = last.new.replicas if last.new is not None else engine.plan.replicas
    seen = [window.latency for window in windows if window.latency is not None]
    mean_s = sum(latency.rows * latency.mean_s for latency in seen) / sum(latency.rows for latency in seen)
    return counts_of(replicas, behaviour), mean_s, by_the_model(last)


@cache
def with_measured_costs(application: str) -> tuple[tuple[OperatorCost, ...], Recommended]:
    """Measure the costs, and return them and the result with them."""
    costs = tuple(measured(application))
    return costs, recommended(application, costs)
