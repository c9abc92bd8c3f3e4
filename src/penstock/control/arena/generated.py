"""Generated dataflows of the arena: shapes, costs, selectivities and skew are drawn from a seed.

The work of an operator is the number of replicas that the peak load keeps busy. It is drawn log-uniformly, and the
cost of a row follows from it, so costs span four decades. Each operator with state has keys of its own, so that it has
its own replicas.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import penstock
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.stream import Stream
from penstock.engines.simulated import (
    Behaviour,
    Exponential,
    Fixed,
    OperatorBehaviour,
    SimulatedBatchCosts,
    SourceBehaviour,
)
from penstock.engines.simulated.behaviour import ChangePause
from penstock.engines.simulated.distributions import Distribution, Gamma, Hyperexponential, Lognormal

GRAIN = 100  # rows in micro-batch mode for each row in row-by-row mode, which simulates fewer rows
_BRANCH = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedDataflow:
    """A dataflow, the visits of its operators per row of all sources, and the peak rate of all sources."""

    name: str
    flow: Dataflow
    selectivity: dict[str, float]
    visits: dict[str, float]
    work: dict[str, float]  # busy replicas at the peak
    peak_per_s: float
    single: frozenset[str]  # operators that have one replica
    skewed: frozenset[str]
    seed: int

    @property
    def slots(self) -> int:
        """Return the slot limit of the arena: about twice the slots that are busy at the peak."""
        return round(2.0 * sum(self.work.values())) + 2 * len(self.work) + 4

    def behaviour(self, rates: tuple[tuple[float, float], ...], *, micro_batch: bool) -> Behaviour:
        """Return the costs under rates that are shares of the peak."""
        draws = random.Random(f"{self.seed} behaviour")
        grain = GRAIN if micro_batch else 1
        operators = {}
        for name, work in self.work.items():
            cost_s = work / (self.peak_per_s * self.visits[name] * grain)
            operators[name] = OperatorBehaviour(
                service_s=_service(draws, cost_s),
                selectivity=Fixed(value=self.selectivity[name]),
                keys=2000 if name in self.skewed else 0,
                zipf=0.6 if name in self.skewed else 0.0,
                state_bytes=draws.choice((0, 2_000_000, 20_000_000)) if self.flow[name].kind.has_state else 0,
            )
        sources = [operator.name for operator in self.flow.operators if operator.kind is Kind.SOURCE]
        per_source = self.peak_per_s * grain / len(sources)
        steps = tuple((at_s, share * per_source) for at_s, share in rates)
        return Behaviour(
            operators=operators,
            sources={name: SourceBehaviour(rates=steps) for name in sources},
            change=ChangePause(fixed_s=draws.uniform(1.0, 4.0)),
            batch=SimulatedBatchCosts(
                batch_s=draws.uniform(0.05, 0.4), task_s=draws.choice((0.005, 0.01, 0.02)), target_s=10.0
            ),
        )


def _service(draws: random.Random, mean_s: float) -> Distribution:
    kind = draws.randrange(5)
    if kind == 0:
        return Gamma(mean=mean_s, scv=0.25)
    if kind == 1:
        return Hyperexponential(mean=mean_s, scv=draws.uniform(1.5, 4.0))
    if kind == 2:
        return Lognormal(mean=mean_s, scv=draws.uniform(0.5, 3.0))
    return Exponential(mean=mean_s)


def _pass(*frames: object) -> object:
    return frames[0]


class _Builder:
    """Adds operators to a dataflow and draws their properties."""

    def __init__(self, name: str, seed: int) -> None:
        self.flow = penstock.Dataflow(name)
        self.draws = random.Random(f"{seed} {name}")
        self.selectivity: dict[str, float] = {}
        self.work: dict[str, float] = {}
        self.single: set[str] = set()
        self.skewed: set[str] = set()
        self._sources = 0

    def source(self) -> Stream:
        self._sources += 1
        generated = penstock.generate(int, schema="n bigint", rows_per_s=1.0)
        return self.flow.source(f"source{self._sources}", generated)

    def operator(
        self, inputs: list[Stream], *, single: bool = False, skewed: bool = False, keeps: float | None = None
    ) -> Stream:
        name = f"op{len(self.work) + 1}"
        self.selectivity[name] = self.draws.choice((0.1, 0.5, 1.0, 1.0, 1.0, 2.0)) if keeps is None else keeps
        # Light operators are as frequent as heavy ones: 0.003 to 8 busy replicas.
        self.work[name] = self.draws.uniform(0.1, 0.4) if single else 10 ** self.draws.uniform(-2.5, 0.9)
        columns = [f"k{len(self.work)}", "n"]
        if single:
            self.single.add(name)
            return self.flow.global_state(name, _pass, inputs=inputs, columns=columns, output_mode="update")
        if skewed:
            self.skewed.add(name)
        elif self.draws.random() < 0.2:
            return self.flow.stateless(name, _pass, inputs=inputs, columns=columns)
        key = (inputs[0].columns or ("n",))[0]
        return self.flow.keyed(name, _pass, keys=[key], inputs=inputs, columns=columns, output_mode="update")


def _chain(build: _Builder) -> None:
    stream = build.source()
    for _ in range(build.draws.randint(2, 6)):
        stream = build.operator([stream])
    stream.sink("out", penstock.noop())


def _skewed(build: _Builder) -> None:
    stream = build.operator([build.source()])
    stream = build.operator([stream], skewed=True)
    build.operator([stream]).sink("out", penstock.noop())


def _diamond(build: _Builder) -> None:
    first = build.operator([build.source()], keeps=1.0)
    branches = [build.operator([first], keeps=_BRANCH) for _ in range(2)]
    build.operator(branches).sink("out", penstock.noop())


def _join(build: _Builder) -> None:
    sides = [build.operator([build.source()]) for _ in range(2)]
    build.operator([build.operator(sides)]).sink("out", penstock.noop())


def _loop(build: _Builder) -> None:
    back = build.flow.feedback("back", schema="n bigint")
    first = build.operator([build.source(), back], keeps=1.0)
    second = build.operator([first], keeps=build.draws.uniform(0.1, 0.5))
    second.feed(back)
    build.operator([second], keeps=1.0).sink("out", penstock.noop())


def _single(build: _Builder) -> None:
    stream = build.operator([build.operator([build.source()])])
    build.operator([stream], single=True).sink("out", penstock.noop())


SHAPES: dict[str, Callable[[_Builder], None]] = {
    "chain": _chain,
    "diamond": _diamond,
    "loop": _loop,
    "join": _join,
    "single": _single,
    "skewed": _skewed,
}


def generated(shape: str, seed: int) -> GeneratedDataflow:
    """Return the dataflow of this shape and seed."""
    build = _Builder(shape, seed)
    SHAPES[shape](build)
    if sum(build.work.values()) < 5.0:  # an autoscaler needs something to scale
        heavy = build.draws.choice([name for name in build.work if name not in build.single])
        build.work[heavy] = build.draws.uniform(5.0, 12.0)
    flow = build.flow
    return GeneratedDataflow(
        name=f"{shape}-{seed}",
        flow=flow,
        selectivity=build.selectivity,
        visits=_visits(flow, build.selectivity),
        work=build.work,
        peak_per_s=10 ** build.draws.uniform(1.3, 2.3),
        single=frozenset(build.single),
        skewed=frozenset(build.skewed),
        seed=seed,
    )


def _visits(flow: Dataflow, selectivity: dict[str, float]) -> dict[str, float]:
    """Return the rows that reach each operator per row of all sources together; a loop is followed until it fades."""
    sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
    visits = dict.fromkeys(selectivity, 0.0)
    for _ in range(60):
        out = {name: 1.0 / len(sources) for name in sources}
        out |= {name: visits[name] * selectivity[name] for name in visits}
        visits = {name: sum(out[before] for before in flow[name].inputs) for name in visits}
    return visits
