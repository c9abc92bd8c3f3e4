"""What the store keeps beside windows: runs, decisions, plan changes, errors. One value a row, names with units."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.dataflow.dataflow import Dataflow
from penstock.measure.load import Load
from penstock.plan.plan import Plan
from penstock.planning.plan_outcome import Alternative, PlanOutcome


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """One operator as the dataflow declares it: enough to draw the graph when the file that declared it is gone."""

    operator: str
    kind: str  # source, stateless, keyed, global_state, sink
    inputs: tuple[str, ...] = ()
    feedback: tuple[str, ...] = ()  # those of the inputs that close a loop


def declared(flow: Dataflow) -> tuple[Declared, ...]:
    """Upstream first."""
    return tuple(
        Declared(operator=one.name, kind=one.kind.value, inputs=one.inputs, feedback=tuple(sorted(one.feedback)))
        for one in flow.operators
    )


STUDY = "mst"  # for a master, of a run that is a study
SIMULATED = "simulated"  # of one that only a simulator has run
WATCHED = "-"  # for a file, of a run that is somebody else's program


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a dataflow in its directory; a resumed run has several."""

    dataflow: str
    flow_file: str  # what `penstock run` was given
    pid: int
    master: str
    cluster: str | None = None  # the directory of the cluster whose master it is: a later start of it has another port
    slots_each: int | None = None  # of an executor; None: of a local master, or nobody said
    started_s: float  # wall clock, seconds since the epoch
    plan: Plan | None = None  # in force when it started; None until the engine is up
    operators: tuple[Declared, ...] = ()  # upstream first; none where nobody declared a dataflow
    stopped_s: float | None = None  # None: still running, or killed
    stopped_why: str | None = None

    @property
    def kind(self) -> str:
        """In words. A directory is for one kind: the record of one says nothing of another."""
        if self.master == SIMULATED:
            return "a simulation"
        if self.master == STUDY:
            return "a study"
        return "a watched program" if self.flow_file == WATCHED else "a run"

    @property
    def takes_requests(self) -> bool:
        return self.master != STUDY and self.flow_file != WATCHED

    @property
    def what(self) -> str:
        """In words. A study has no master of its own, and a program that is watched no file.

        >>> run = Run(dataflow="wc", flow_file="wc.py", pid=1, master="local[2]", started_s=0.0)
        >>> [msgspec.structs.replace(run, **other).what for other in ({}, {"flow_file": WATCHED}, {"master": STUDY})]
        ['wc.py on local[2]', 'a watched program on local[2]', 'a study of wc.py']
        """
        if self.master == SIMULATED:
            return SIMULATED
        if self.master == STUDY:
            return f"a study of {self.flow_file}"
        return f"{'a watched program' if self.flow_file == WATCHED else self.flow_file} on {self.master}"


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    asked: str  # in words, and by whom: "rescale count=4"
    outcome: Literal["ok", "rolled back"]
    reason: str  # what changed, or why it could not
    old: Plan
    new: Plan  # the plan asked for, also where it was rolled back
    pause_s: float | None  # None where it was rolled back


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    at_s: float
    where: str  # start, observe, a request, a policy, apply, query, run, stop
    message: str
    traceback: str | None = None  # only of errors that nobody raised on purpose


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the loop: what was decided and why; what came of it is written beside it later."""

    at_s: float
    window: int | None  # the number of the last window that it saw
    policy: str
    mode: Literal["recommend", "active"]
    kind: Literal["hold", "change"]
    reason: str  # a code
    why: str  # in words
    inputs: dict[str, float | None]
    binding: str | None
    alternatives: tuple[Alternative, ...]
    needs_slots: int | None
    old: Plan
    new: Plan | None  # of a change
    before: PlanOutcome | None  # measured when it was decided
    expected: PlanOutcome | None  # of a change
    applied: Literal["recommended", "begun", "ok", "failed"] | None = None  # "begun" of a run that died in between
    applied_why: str | None = None
    pause_s: float | None = None
    took_s: float | None = None  # the change, executors that were waited for included
    observed: PlanOutcome | None = None  # after the change
    observed_at_s: float | None = None
    verdict: Literal["kept", "fell short", "rolled back", "load changed", "superseded"] | None = None
    memory: dict[str, float] = {}  # what the policy knew then
    load: Load | None = None  # of a change: under which it was decided


RULE = "rule"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of a study, under one plan, from an empty start."""

    study: str  # what is measured, and how: "mst", "mst paced"
    executors: int
    repeat: int  # from 0
    plan: Plan
    began_s: float
    ended_s: float
    rows_per_s: float | None  # the result; None: there is none
    bytes_per_s: float | None = None
    settled: bool = False  # by the rule that the study goes by; otherwise it is the best that there was
    samples: tuple[float, ...] = ()  # what it was made of, in the order of time
    why: str | None = None  # there is no result, or it did not settle
    replicas_by: str = RULE  # or the name of a policy
    program: str | None = None  # a fingerprint of what was measured; None of trials from before it was kept
    memory_mb: int | None = None  # of an executor; the same

    @property
    def key(self) -> tuple[str, int, int]:
        return self.study, self.executors, self.repeat
