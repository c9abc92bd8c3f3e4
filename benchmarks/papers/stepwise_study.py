"""Studies of the stepwise profiler and rounds of its baselines on simulated nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.papers.policy_rounds import PolicyRound, policy_rounds
from benchmarks.papers.storm_flows import SLOTS_PER_NODE, Application
from penstock.control.policies.stela import Stela
from penstock.control.policies.threshold import Threshold
from penstock.engines.simulated import SimulatedEngine
from penstock.plan import Plan
from penstock.store import Store
from penstock.study.stepwise.profile import Profile
from penstock.study.stepwise.study import StepwiseSettings, StepwiseStudy


@dataclass(slots=True)
class Engines:
    """Creates the engine of each trial."""

    application: Application
    seed: int
    made: int = 0
    last: SimulatedEngine | None = field(default=None)

    def fresh(self, plan: Plan) -> tuple[SimulatedEngine, object]:
        self.made += 1
        self.last = SimulatedEngine(
            self.application.flow,
            self.application.costs,
            plan=plan,
            mode="row-by-row",
            seed=self.seed * 1000 + self.made,
            epoch_s=self.time(),
        )
        return self.last, self.last.clock

    def time(self) -> float:
        return time.time() if self.last is None else self.last.clock.time()


def study(
    application: Application,
    nodes: int,
    *,
    latency_s: float | None = None,
    slice_: float = 0.3,
    k: float = 2.0,
    as_printed: bool = False,
    max_rounds: int = 40,
    seed: int = 0,
) -> Profile:
    """Profile an application on so many nodes.

    With `as_printed` the steps are those of the paper: there is no additional trial, and the latency that `k` limits
    does not include the time that rows wait.
    """
    engines = Engines(application, seed)
    with TemporaryDirectory() as directory, Store(Path(directory)) as store:
        return StepwiseStudy(
            flow=application.flow,
            fresh=engines.fresh,  # type: ignore[arg-type]
            store=store,
            settings=StepwiseSettings(
                slots=SLOTS_PER_NODE * nodes,
                latency_target_s=application.latency_s if latency_s is None else latency_s,
                slice_=slice_,
                k=k,
                fills_slots=not as_printed,
                latency_includes_waiting=not as_printed,
                max_rounds=max_rounds,
            ),
            time=engines.time,
        ).run()


def stela(application: Application, nodes: int, rounds: int, seed: int = 0) -> list[PolicyRound]:
    """Return the rounds of Stela, with one attempt per node in each round."""
    return policy_rounds(Stela(attempts=nodes), application, nodes=nodes, rounds=rounds, seed=seed)


def threshold(application: Application, nodes: int, rounds: int, seed: int = 0) -> list[PolicyRound]:
    return policy_rounds(Threshold(), application, nodes=nodes, rounds=rounds, seed=seed)
