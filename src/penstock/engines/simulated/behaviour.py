"""Behaviour: what the operators of a dataflow cost and do when nothing real runs. A pure value, JSON in and out.

The dataflow says what is connected to what, the plan how it is spread; this says how long a row takes, how many rows it
becomes, where they go, how rows arrive, and what machines and changes are like.
"""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar

import msgspec

from penstock.dataflow import Dataflow, Kind, PenstockError
from penstock.dataflow.document import Document
from penstock.engines.simulated.distributions import BehaviourError, Distribution, Exponential, Fixed
from penstock.models.curve import CurvePoint


class Queue(StrEnum):
    SHARED = "shared"  # one queue, and whoever is free takes from it: M/M/k
    REPLICA = "replica"  # a queue for each replica: by key where the operator is keyed, else in turn


class OperatorBehaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    service_s: Distribution = Fixed(value=0.0)  # seconds of one replica for one row
    selectivity: Distribution | None = None  # rows out for a row in; None: as declared in the dataflow, else 1
    # Consumer -> share of the rows out that go there and nowhere else. Without it every consumer gets every row.
    routes: dict[str, float] = {}
    queue: Queue = Queue.SHARED
    keys: int = 0  # how many there are; 0: rows are spread evenly over the replicas
    zipf: float = 0.0  # skew of the keys: the i-th most frequent has weight i^-zipf
    buffer_rows: int | None = None  # rows that may wait within a pipeline before those upstream must; None: any number
    pairs: bool = False  # a join that waits for one row of each input and takes them together
    state_bytes: int = 0
    curve: dict[str, CurvePoint] = {}  # threads on one slot -> their peak rate: how they slow each other down


class SourceBehaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # (from second, rows/s), ascending; the last one stays. None: as declared in the dataflow.
    rates: tuple[tuple[float, float], ...] | None = None
    repeat_s: float | None = None  # the rates begin anew after so long
    interarrival: Distribution = Exponential(mean=1.0)  # only its shape counts: the rate sets its mean
    batch: Distribution = Fixed(value=1.0)  # rows that arrive together
    rows: int | None = None  # in all; None: as declared in the dataflow


class Cluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slots_per_executor: int = 4
    most_executors: int | None = None
    start_up_s: float = 0.0  # until a new executor takes work
    mean_time_to_failure_s: float | None = None  # of one executor, exponential; None: they never fail


class ChangePause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long what is changed stands still: fixed_s + state moved x seconds_per_state_mb."""

    fixed_s: float = 1.0
    seconds_per_state_mb: float = 0.01


class BatchCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """D(n) = batch_s + sum over stages of [ n v c / min(k, slots) + task_s k ]."""

    batch_s: float = 0.1
    task_s: float = 0.01
    trigger_s: float = 0.0  # least time from the start of a batch to the next one's
    most_rows: int | None = None  # of one batch
    # How long batches should last where rows have piled up: they are cut short for that, as Penstock does on Spark.
    aim_s: float | None = None
    poll_s: float = 0.01  # how often an idle query looks for rows


class Behaviour(msgspec.Struct, Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    >>> cost = OperatorBehaviour(service_s=Exponential(mean=0.01))
    >>> behaviour = Behaviour(operators={"match": cost}, sources={"frames": SourceBehaviour(rates=((0.0, 50.0),))})
    >>> Behaviour.from_json(behaviour.to_json()) == behaviour
    True
    """

    called: ClassVar[str] = "a behaviour"
    example: ClassVar[str] = (
        '{"operators": {"match": {"service_s": {"kind": "exponential", "mean": 0.01}}}, '
        '"sources": {"frames": {"rates": [[0, 50]]}}}'
    )
    refused_with: ClassVar[type[PenstockError]] = BehaviourError

    operators: dict[str, OperatorBehaviour] = {}  # those not named cost nothing
    sources: dict[str, SourceBehaviour] = {}
    cluster: Cluster = Cluster()
    change: ChangePause = ChangePause()
    batch: BatchCosts = BatchCosts()

    def of(self, operator: str) -> OperatorBehaviour:
        return self.operators.get(operator, _FREE)

    def source(self, name: str) -> SourceBehaviour:
        return self.sources.get(name, _PLAIN)

    def selectivity(self, flow: Dataflow, name: str) -> Distribution:
        declared = flow[name].selectivity
        return self.of(name).selectivity or Fixed(value=1.0 if declared is None else declared)

    def check(self, flow: Dataflow) -> None:
        """Refuses what does not fit the dataflow or cannot be."""
        for name, one in self.operators.items():
            if name not in flow or flow[name].kind is Kind.SOURCE:
                raise BehaviourError(f"behaviour is given for '{name}', which is no operator of '{flow.name}'")
            _check_operator(flow, name, one)
        for name, source in self.sources.items():
            if name not in flow or flow[name].kind is not Kind.SOURCE:
                raise BehaviourError(f"rates are given for '{name}', which is no source of '{flow.name}'")
            _check_source(name, source)
        if self.cluster.slots_per_executor < 1:
            raise BehaviourError(f"an executor has {self.cluster.slots_per_executor} slots; it has 1 or more")
        for what, seconds in (
            ("start_up_s", self.cluster.start_up_s),
            ("fixed_s", self.change.fixed_s),
            ("seconds_per_state_mb", self.change.seconds_per_state_mb),
            ("batch_s", self.batch.batch_s),
            ("task_s", self.batch.task_s),
            ("trigger_s", self.batch.trigger_s),
        ):
            if not (math.isfinite(seconds) and seconds >= 0):
                raise BehaviourError(f"{what} is {seconds}; it must be a number of seconds, 0 or more")
        if self.batch.most_rows is not None and self.batch.most_rows < 1:
            raise BehaviourError(f"most_rows is {self.batch.most_rows}; a batch has 1 row or more")
        mean_s = self.cluster.mean_time_to_failure_s
        if mean_s is not None and not mean_s > 0:
            raise BehaviourError(f"mean_time_to_failure_s is {mean_s}; it must be above 0, or null for never")
        if self.batch.aim_s is not None and not self.batch.aim_s > 0:
            raise BehaviourError(f"aim_s is {self.batch.aim_s}; batches are to last for a time above 0, or any (null)")
        if not self.batch.poll_s > 0:
            raise BehaviourError(f"poll_s is {self.batch.poll_s}; an idle query looks for rows at times above 0 apart")


def _check_operator(flow: Dataflow, name: str, one: OperatorBehaviour) -> None:
    consumers = {consumer.name for consumer in flow.consumers(name)}
    for target, share in one.routes.items():
        if target not in consumers:
            raise BehaviourError(
                f"'{name}' routes rows to '{target}', which does not read it; {', '.join(sorted(consumers))} do"
            )
        if not 0 <= share <= 1:
            raise BehaviourError(f"'{name}' routes a share of {share} to '{target}'; a share is between 0 and 1")
    if math.fsum(one.routes.values()) > 1.0 + 1e-9:
        raise BehaviourError(f"the shares that '{name}' routes add up to more than 1; leave routes out to copy rows")
    if len(consumers) == 1 and one.routes and math.fsum(one.routes.values()) < 1.0 - 1e-9:
        raise BehaviourError(f"'{name}' routes a part of its rows to its only reader; give it a selectivity instead")
    if one.buffer_rows is not None and one.buffer_rows < 1:
        raise BehaviourError(f"the buffer of '{name}' holds {one.buffer_rows} rows; it must hold 1 or more")
    if one.keys < 0 or not one.zipf >= 0 or one.state_bytes < 0:
        raise BehaviourError(f"'{name}' has keys={one.keys}, zipf={one.zipf}, state_bytes={one.state_bytes}: 0 or more")
    if one.pairs and len(flow[name].inputs) < 2:
        raise BehaviourError(f"'{name}' pairs the rows of its inputs but has one input only")


def _check_source(name: str, source: SourceBehaviour) -> None:
    if source.rates is not None:
        times = [at_s for at_s, _ in source.rates]
        if not times or times[0] != 0 or any(after <= before for before, after in pairwise(times)):
            raise BehaviourError(
                f"the rates of '{name}' must begin at second 0 and ascend, but their times are {times}"
            )
        for _, rate in source.rates:
            if not (math.isfinite(rate) and rate >= 0):
                raise BehaviourError(f"a rate of '{name}' is {rate}; a rate is a number of rows/s, 0 or more")
        if source.repeat_s is not None and source.repeat_s <= times[-1]:
            raise BehaviourError(f"the rates of '{name}' repeat after {source.repeat_s} s, before their last change")
    for what, mean in (("time between arrivals", source.interarrival.mean), ("batch size", source.batch.mean)):
        if not mean > 0:
            raise BehaviourError(f"the mean {what} of '{name}' is {mean}; it must be above 0")


_FREE = OperatorBehaviour()
_PLAIN = SourceBehaviour()
