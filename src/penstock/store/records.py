"""The rows of a store, except windows: runs, decisions, plan changes, errors and trials."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.dataflow.dataflow import Dataflow
from penstock.measure.load import Load
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome
from penstock.planning.plan_prediction import PlanPrediction

RunKind = Literal["run", "study", "simulation", "watch"]
REPLICAS_BY_RULE = "rule"


class OperatorDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """One operator as declared. The graph can be drawn from it without the file that declared the dataflow."""

    operator: str
    kind: str  # a value of dataflow.Kind
    inputs: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()  # the inputs that close a loop


def declarations(flow: Dataflow) -> tuple[OperatorDeclaration, ...]:
    """Return the operators of a dataflow, upstream first."""
    return tuple(
        OperatorDeclaration(
            operator=operator.name,
            kind=operator.kind.value,
            inputs=operator.inputs,
            feedback=tuple(sorted(operator.feedback)),
        )
        for operator in flow.operators
    )


class LatencyTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The latency that a policy must not exceed."""

    seconds: float
    quantile: float | None = None  # None: the target applies to the mean

    @property
    def statistic(self) -> str:
        """
        >>> LatencyTarget(seconds=1.0).statistic, LatencyTarget(seconds=1.0, quantile=0.95).statistic
        ('mean', 'p95')
        """
        return "mean" if self.quantile is None else f"p{self.quantile * 100:g}"


class RunStart(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a dataflow in its directory; a resumed run has several."""

    dataflow: str
    kind: RunKind = "run"
    flow_file: str  # the argument of `penstock run`; "-" if there is none
    pid: int
    master: str  # "-" if there is none
    cluster: str | None = None  # directory of the cluster; the master's port changes when the cluster restarts
    slots_per_executor: int | None = None  # slots per executor; None if unknown or if the master is local
    price_per_slot_hour: float | None = None
    started_s: float  # wall clock, seconds since the epoch
    latency_target: LatencyTarget | None = None
    prediction: PlanPrediction | None = None  # for the plan that was given, if it has one
    plan: Plan | None = None  # the plan at the start; None until the engine has started
    startup_s: dict[str, float] = {}  # phase -> seconds; empty until the engine has started
    ready_s: float | None = None  # when the engine had started
    warm_up_s: float = 0.0  # the first windows after `ready_s`, which headline figures leave out
    operators: tuple[OperatorDeclaration, ...] = ()  # upstream first; empty if no dataflow was declared
    stopped_s: float | None = None  # None if the run is active or was killed
    stop_reason: str | None = None

    @property
    def kind_text(self) -> str:
        """The kind with an article. All runs of a directory have the same kind."""
        return {"run": "a run", "study": "a study", "simulation": "a simulation", "watch": "a watched program"}[
            self.kind
        ]

    @property
    def takes_requests(self) -> bool:
        return self.kind in ("run", "simulation")

    @property
    def description(self) -> str:
        """The program and where it ran.

        >>> run = RunStart(dataflow="wc", flow_file="wc.py", pid=1, master="local[2]", started_s=0.0)
        >>> [msgspec.structs.replace(run, kind=kind).description for kind in ("run", "watch", "study")]
        ['wc.py on local[2]', 'a watched program on local[2]', 'a study of wc.py']
        """
        match self.kind:
            case "simulation":
                return "simulated"
            case "study":
                return f"a study of {self.flow_file}"
            case "watch":
                return f"a watched program on {self.master}"
        return f"{'a Python program' if self.flow_file == '-' else self.flow_file} on {self.master}"


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to change the plan of a run."""

    at_s: float
    asked: str  # the request and its origin: "rescale count=4"
    outcome: Literal["ok", "rolled back"]
    reason: str  # the difference, or why the change failed
    old: Plan
    new: Plan  # the requested plan, also if it was rolled back
    pause_s: float | None  # None if it was rolled back


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An error of a run."""

    at_s: float
    where: str  # start, observe, a request, a policy, apply, query, run, stop
    message: str
    traceback: str | None = None  # only for unexpected errors


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a policy, why it was made, and later its effect."""

    at_s: float
    window: int | None  # number of the latest window that the policy saw
    policy: str
    mode: Literal["recommend", "active"]
    kind: Literal["hold", "change"]
    reason_code: str  # a value of `control.policy.Reason`
    reason: str  # one sentence with the numbers
    inputs: dict[str, float | None]
    binding: str | None
    alternatives: tuple[Alternative, ...]
    needs_slots: int | None
    old: Plan
    new: Plan | None  # None for a hold
    before: PlanOutcome | None  # measured before the decision
    expected: PlanOutcome | None  # None for a hold
    applied: Literal["recommended", "begun", "ok", "failed"] | None = None  # stays "begun" if the run was killed
    failure: str | None = None
    pause_s: float | None = None
    took_s: float | None = None  # duration of the change, including the wait for executors
    moved_rows: float | None = None  # state that the change has moved; None if it was not measured
    moved_bytes: float | None = None
    observed: PlanOutcome | None = None  # measured after the change
    observed_at_s: float | None = None
    verdict: Literal["kept", "fell short", "rolled back", "load changed", "superseded"] | None = None
    memory: dict[str, float | str | dict[str, Any]] = {}  # state of the policy; auto keeps a value of its own
    load: Load | None = None  # the load for which a change was decided


class ProfiledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The features of an operator that do not depend on the plan."""

    operator: str
    type: str  # a value of `study.stepwise.operator_types.OperatorType`
    min_latency_s: float  # per row
    rows_in: float  # per external row
    streams: dict[str, float]  # consumer -> share of the rows of all streams
    # Consumer -> share of the bytes of all streams; None if the size of a row of some stream is unknown.
    streams_bytes: dict[str, float] | None = None


class ProfiledRegion(msgspec.Struct, frozen=True, kw_only=True):
    """Operators that a trial replicates together."""

    latency_s: float  # mean time of a row, waiting included
    capacity: float  # share of the time of its replicas in which they execute rows
    processing_s: float | None = None  # mean time of a row without waiting


class ProfileTrial(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a trial that only the stepwise profiler uses."""

    step: Literal["features", "platform", "capacity"]
    conditions: dict[str, str]  # settings of the study; trials under other settings are not comparable
    change: str = ""  # a value of `study.stepwise.configuration.Change`
    reason: str = ""  # why this configuration was tried
    source_tasks: int = 1
    throttle: float = 1.0  # share of the rows in flight that the sources may have
    reference: int | None = None  # number of the round that it was compared with; None for the first round
    verdict: str | None = None  # a value of `study.stepwise.sequential_test.Verdict`
    latency_s: float | None = None
    regions: dict[str, ProfiledRegion] = {}
    saved_s: float = 0.0  # time by which the trial was shorter than the longest trial
    operators: tuple[ProfiledOperator, ...] = ()  # the result of step "features"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a study, under one plan, from an empty start."""

    study: str  # "mst", "mst paced" or "profile"
    executors: int
    repeat: int  # from 0
    plan: Plan
    began_s: float
    ended_s: float
    rows_per_s: float | None  # the result; None if the trial failed
    bytes_per_s: float | None = None
    converged: bool = False  # whether the samples met the study's convergence criterion
    samples: tuple[float, ...] = ()  # rows/s, oldest first
    reason: str | None = None  # why the trial failed or did not converge
    replicas_by: str = REPLICAS_BY_RULE  # or the name of a policy
    program: str | None = None  # fingerprint of the measured program
    memory_mb: int | None = None  # memory per executor
    profile: ProfileTrial | None = None  # only for study "profile"

    @property
    def key(self) -> tuple[str, int, int]:
        return self.study, self.executors, self.repeat
