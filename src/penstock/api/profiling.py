"""`penstock.profile`: the best plan of a dataflow on a given number of slots, found with a few trials."""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.api.input_files import dataflow_from
from penstock.api.policy_options import OptionError
from penstock.api.record import RunRecord
from penstock.api.simulated_costs import limited_batches, operator_costs, record_of_costs
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.control.loop import Clock
    from penstock.engines.ports import RunnableEngine
    from penstock.engines.simulated import Behaviour, SimulatedEngine
    from penstock.plan import Plan
    from penstock.store import Store
    from penstock.study.stepwise.operator_types import OperatorType
    from penstock.study.stepwise.profile import Profile, ProfileProgress
    from penstock.study.stepwise.study import StepwiseSettings

ProfiledEngine = Literal["row-by-row", "micro-batch"]
PROFILED_ENGINES: tuple[ProfiledEngine, ...] = ("row-by-row", "micro-batch")
OPERATOR_TYPES = ("proportional", "workload-dependent", "logic-dependent")
PLAN_FILE = "plan.json"
_SEEDS_PER_TRIAL = 100


@checked_types(OptionError)
def profile(
    flow: Dataflow | str,
    *,
    latency_s: float = 0.5,
    slots: int,
    engine: ProfiledEngine = "row-by-row",
    behaviour: Behaviour | str | Path | None = None,
    like: RunRecord | str | Path | None = None,
    slice: float = 0.3,
    k: float = 2.0,
    alpha: float = 0.9,
    types: Mapping[str, str] | None = None,
    at: str | Path | None = None,
    seed: int = 0,
    on_progress: Callable[[ProfileProgress], None] | None = None,
) -> Profile:
    """Find the plan with the highest throughput within a latency target, in simulation, and store it.

    The study measures the operators at a small load, adds tasks in the ratio of their loads until the platform is used
    up, and then adjusts single operators. Each trial is stored when it ends, so the same call continues an interrupted
    study. The directory also contains the plan as `plan.json`.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        latency_s: Highest mean latency.
        slots: Number of slots of the platform.
        engine: Kind of simulated engine: "row-by-row" or "micro-batch" (as Spark works).
        behaviour: Cost of the operators, as a value or as a JSON file; give either this or `like`.
        like: A record, or the directory of a run, whose measured operator costs are used.
        slice: Unit of the task load. A smaller unit follows the ratio of the loads more closely, in larger steps.
        k: Stop when the latency of each operator is within this multiple of its minimum.
        alpha: Share of the best throughput below which the platform is used up.
        types: Types of operators by name, if they are known: "proportional", "workload-dependent" or
            "logic-dependent". The types of all other operators are measured.
        at: Directory of the study; default `studies/<name of the dataflow>-profile`.
        seed: Seed of the random numbers.
        on_progress: Called at the start and after each round.

    Returns:
        The best plan, its throughput and latency, and all rounds.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: The directory contains trials of another program or with other settings.
    """
    from penstock.study.stepwise.study import StepwiseSettings

    _check(engine, latency_s=latency_s, slots=slots, slice=slice, k=k, alpha=alpha)
    record = record_of_costs(behaviour, like)
    dataflow = dataflow_from(flow).without_output()
    costs = _for_trials(dataflow, operator_costs(dataflow, behaviour, record))
    settings = StepwiseSettings(
        slots=slots,
        latency_target_s=latency_s,
        slice_=slice,
        k=k,
        alpha=alpha,
        stages_take_turns=engine == "micro-batch",
        types=_declared_types(dataflow, types or {}),
    )
    directory = Path("studies") / f"{dataflow.name}-profile" if at is None else local_directory(at)
    name = flow if isinstance(flow, str) else dataflow.name
    result = _study(dataflow, name, costs, settings, engine, seed, directory, on_progress)
    (directory / PLAN_FILE).write_text(result.plan.to_json())
    return result


def _check(engine: str, *, latency_s: float, slots: int, slice: float, k: float, alpha: float) -> None:
    if engine not in PROFILED_ENGINES:
        raise OptionError(f"There is no engine '{engine}'; the engines are {', '.join(PROFILED_ENGINES)}.")
    if not 0 < latency_s < math.inf:
        raise OptionError(f"latency_s is {latency_s}; it must be a number of seconds above 0.")
    if slots < 1:
        raise OptionError(f"slots is {slots}; at least 1 slot is required.")
    if not 0 < slice <= 1:
        raise OptionError(f"slice is {slice}; it must be above 0 and at most 1.")
    if not 1 <= k < math.inf:
        raise OptionError(f"k is {k}; it must be a number of at least 1.")
    if not 0 < alpha <= 1:
        raise OptionError(f"alpha is {alpha}; it must be above 0 and at most 1.")


def _declared_types(flow: Dataflow, types: Mapping[str, str]) -> dict[str, OperatorType]:
    from penstock.study.stepwise.operator_types import OperatorType

    names = [operator.name for operator in flow.operators]
    for name, declared in types.items():
        if name not in names:
            raise OptionError(f"'{name}' is not an operator of '{flow.name}'; its operators are {', '.join(names)}.")
        if declared not in OPERATOR_TYPES:
            raise OptionError(f"'{declared}' is not an operator type; the types are {', '.join(OPERATOR_TYPES)}.")
    return {name: OperatorType(declared) for name, declared in types.items()}


def _for_trials(flow: Dataflow, costs: Behaviour) -> Behaviour:
    """Let the study set the rates of all sources, whatever they declare."""
    from penstock.engines.simulated.behaviour import UNLIMITED_ROWS

    costs.check(flow)
    sources = {
        operator.name: msgspec.structs.replace(costs.source(operator.name), rates=((0.0, 1.0),), rows=UNLIMITED_ROWS)
        for operator in flow.operators
        if operator.kind is Kind.SOURCE
    }
    return limited_batches(costs.replace(sources=sources))


def _study(
    flow: Dataflow,
    name: str,
    costs: Behaviour,
    settings: StepwiseSettings,
    engine: ProfiledEngine,
    seed: int,
    directory: Path,
    on_progress: Callable[[ProfileProgress], None] | None,
) -> Profile:
    from penstock.store import RunStart, Store
    from penstock.study.mst.fingerprint import fingerprint
    from penstock.study.stepwise.study import StepwiseStudy

    with Store(directory) as store:
        run = store.last_run()
        if run is not None and (run.dataflow != flow.name or run.kind != "study"):
            raise PenstockError(
                f"'{directory}' contains {run.kind_text} of '{run.dataflow}', not a study of '{flow.name}'; use "
                "another directory."
            )
        trials = _SimulatedTrials(flow, costs, engine, seed, store)
        study = StepwiseStudy(
            flow=flow,
            fresh=trials.fresh,
            store=store,
            settings=settings,
            time=trials.time,
            program=fingerprint(flow),
            conditions=_conditions(costs, settings, engine, seed),
            executors=math.ceil(settings.slots / costs.cluster.slots_per_executor),
        )
        study.check_earlier_trials()
        store.begin_run(
            RunStart(
                dataflow=flow.name, kind="study", flow_file=name, pid=os.getpid(), master="-", started_s=time.time()
            )
        )
        try:
            result = study.run(on_progress)
        except BaseException:
            store.end_run(at_s=time.time(), reason="interrupted")
            raise
        store.end_run(at_s=time.time(), reason="all trials are complete")
        return result


def _conditions(costs: Behaviour, settings: StepwiseSettings, engine: str, seed: int) -> dict[str, str]:
    """Return everything that makes two trials comparable. The behaviour is too long: its hash represents it."""
    types = {name: declared.value for name, declared in settings.types.items()}
    return {
        "engine": engine,
        "slots": str(settings.slots),
        "latency_s": f"{settings.latency_target_s:g}",
        "slice": f"{settings.slice_:g}",
        "k": f"{settings.k:g}",
        "alpha": f"{settings.alpha:g}",
        "seed": str(seed),
        "behaviour": hashlib.sha256(costs.to_json().encode()).hexdigest()[:16],
        "types": ", ".join(f"{name}: {declared}" for name, declared in sorted(types.items())) or "measured",
    }


class _SimulatedTrials:
    """Creates the engines of a study. The time of a trial begins where that of the previous one ended."""

    def __init__(self, flow: Dataflow, costs: Behaviour, mode: str, seed: int, store: Store) -> None:
        self._flow, self._costs, self._mode, self._seed, self._store = flow, costs, mode, seed, store
        self._started_s = time.time()
        self._engine: SimulatedEngine | None = None
        self._trial, self._run = -1, 0

    def fresh(self, plan: Plan) -> tuple[RunnableEngine, Clock]:
        """Return an engine. Its seed depends on the number of the trial, so a resumed study has the same results."""
        from penstock.engines.simulated import SimulatedEngine

        trial = len(self._store.trials())
        self._run = self._run + 1 if trial == self._trial else 0
        self._trial = trial
        self._engine = SimulatedEngine(
            self._flow,
            self._costs,
            plan=plan,
            mode=self._mode,
            seed=self._seed + _SEEDS_PER_TRIAL * trial + self._run,
            epoch_s=self.time(),
        )
        return self._engine, self._engine.clock

    def time(self) -> float:
        return self._started_s if self._engine is None else self._engine.clock.time()
