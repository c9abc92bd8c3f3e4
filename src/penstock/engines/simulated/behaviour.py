"""The behaviour of a simulated dataflow: costs, selectivities, arrivals, executors and changes. A value with JSON form.

The dataflow defines the graph and the plan defines the parallelism. The behaviour defines everything that a real run
would measure.
"""

from __future__ import annotations

import math
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar

import msgspec

from penstock.dataflow import Dataflow, Kind, PenstockError
from penstock.dataflow.json_document import JsonDocument
from penstock.dataflow.operator_class import PortOperator
from penstock.dataflow.schedule import NoSchedule, PeriodicSchedule, Ports, RowSchedule
from penstock.engines.simulated.distributions import LARGEST, BehaviourError, Distribution, Exponential, Fixed
from penstock.engines.simulated.placement import PLACEMENTS
from penstock.models.curve import CurvePoint

UNLIMITED_ROWS = 2**62  # `SourceBehaviour.rows` of a source that never ends


class Queue(StrEnum):
    SHARED = "shared"  # one queue for all replicas, as in M/M/k
    REPLICA = "replica"  # one queue per replica; rows are assigned by key if the operator is keyed, else round-robin


class OperatorBehaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    service_s: Distribution = Fixed(value=0.0)  # seconds per row on one replica
    selectivity: Distribution | None = None  # rows out per row in; None: the declared selectivity, else 1
    # Consumer -> share of the rows that go to this consumer only. Empty: every consumer receives every row.
    routes: dict[str, float] = {}
    queue: Queue = Queue.SHARED
    keys: int = 0  # number of distinct keys; 0: rows are spread evenly over the replicas
    zipf: float = 0.0  # skew of the keys: the i-th most frequent key has the weight i^-zipf
    buffer_rows: int | None = None  # size of its input buffer within a pipeline; a full buffer blocks the producer
    pairs: bool = False  # the operator is a join that takes one row of each input together
    state_rows: int = 0
    state_bytes: int = 0
    # Given: the output does not depend on the input, such as a ranking that is emitted once per period (row-by-row and
    # micro-batch modes). `selectivity` is then the number of rows per period.
    period_s: float | None = None
    workload: tuple[float, ...] = ()  # factors of the selectivity in consecutive parts of the input, repeated
    workload_rows: int = 1000  # rows of such a part
    # Share of the service time in which a replica uses its core; it waits for the rest. In micro-batch mode a task
    # occupies its slot also while it waits.
    cpu_share: float = 1.0
    # Rows out per invocation of an operator class. Its schedule determines the invocations (row-by-row and micro-batch
    # modes), unless `selectivity` is given. All keys count as one.
    emitted: Distribution = Fixed(value=1.0)
    row_bytes: float | None = None  # mean size of a row that it emits; None: unknown
    curve: dict[str, CurvePoint] = {}  # threads on one slot -> their peak rate together


class SourceBehaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # (second, rows/s) pairs in ascending order; the last rate stays. None: the rate that the dataflow declares.
    rates: tuple[tuple[float, float], ...] | None = None
    repeat_s: float | None = None  # period after which the rates start again
    interarrival: Distribution = Exponential(mean=1.0)  # only its shape matters: the rate sets the mean
    batch: Distribution = Fixed(value=1.0)  # rows that arrive together
    rows: int | None = None  # total number of rows; None: the number that the dataflow declares
    row_bytes: float | None = None  # mean size of a row; None: unknown


class SimulatedCluster(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    slots_per_executor: int = 4
    # Slot of each replica of an operator, by the first operator of its station. Other operators have the placement.
    places: dict[str, tuple[int, ...]] = {}
    # Bundles of threads with curves use any core of their executor, as processes of one machine do, instead of that of
    # their slot.
    pooled_cores: bool = False
    max_executors: int | None = None
    start_up_s: float = 0.0  # time between the request of an executor and its first task
    mean_time_to_failure_s: float | None = None  # per executor, exponential; None: executors never fail
    placement: str = "even"  # how replicas are assigned to slots, a name in `placement.PLACEMENTS`


class ChangePause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pause of the pipelines that a plan change affects: fixed_s + moved state x seconds_per_state_mb."""

    fixed_s: float = 1.0
    seconds_per_state_mb: float = 0.01


class ThreadCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Row-by-row mode: queues between threads.

    A replica needs the time row_s for each row that it takes from the queue in front of its pipeline, and replica_s x
    log2(k) more if the row enters a region with k replicas: rows are distributed over replicas there, and a row stays
    with its replica within the region. It needs send_s for each row that it puts into the queue of another pipeline;
    the expected number of these rows counts. A pipeline without any work costs nothing.
    """

    row_s: float = 0.0
    replica_s: float = 0.0
    send_s: float = 0.0
    # Rows that may wait in front of a pipeline, also behind a cut; a full queue blocks the producer. None: operators
    # may have buffers of their own, and cuts are logs without a limit.
    queue_rows: int | None = None

    def per_row_s(self, replicas: int, *, sent_rows: float) -> float:
        """Return the time for a row that enters a pipeline and becomes `sent_rows` rows for other pipelines.

        >>> ThreadCosts(row_s=0.5, replica_s=0.25, send_s=0.1).per_row_s(4, sent_rows=2.0)
        1.2
        """
        return self.row_s + self.replica_s * math.log2(replicas) + self.send_s * sent_rows


class SimulatedBatchCosts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The duration of a batch of n rows: D(n) = batch_s + sum over stages of [n v c / min(k, slots) + task_s k].

    The stage has v rows per row of the batch, c seconds per row and k tasks.
    """

    batch_s: float = 0.1
    task_s: float = 0.01
    trigger_s: float = 0.0  # minimum time between the starts of two batches
    max_rows: int | None = None  # limit per batch
    target_s: float | None = None  # batches under a backlog are limited to about this duration, as on Spark
    poll_s: float = 0.01  # interval at which an idle query looks for rows


class Behaviour(msgspec.Struct, JsonDocument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of all operators and sources, of the cluster, of batches and of plan changes.

    >>> cost = OperatorBehaviour(service_s=Exponential(mean=0.01))
    >>> behaviour = Behaviour(operators={"match": cost}, sources={"frames": SourceBehaviour(rates=((0.0, 50.0),))})
    >>> Behaviour.from_json(behaviour.to_json()) == behaviour
    True
    """

    noun: ClassVar[str] = "a behaviour"
    json_example: ClassVar[str] = (
        '{"operators": {"match": {"service_s": {"kind": "exponential", "mean": 0.01}}}, '
        '"sources": {"frames": {"rates": [[0, 50]]}}}'
    )
    error_type: ClassVar[type[PenstockError]] = BehaviourError

    operators: dict[str, OperatorBehaviour] = {}  # operators that are not named cost nothing
    sources: dict[str, SourceBehaviour] = {}
    cluster: SimulatedCluster = SimulatedCluster()
    change: ChangePause = ChangePause()
    batch: SimulatedBatchCosts = SimulatedBatchCosts()
    thread: ThreadCosts = ThreadCosts()

    def of(self, operator: str) -> OperatorBehaviour:
        return self.operators.get(operator, _FREE)

    def source(self, name: str) -> SourceBehaviour:
        return self.sources.get(name, _PLAIN)

    def schedule(self, flow: Dataflow, name: str) -> PortOperator | None:
        """Return the operator class whose schedule is simulated; None if the output follows from the selectivity."""
        function = self._operator_class(flow, name)
        return function if function is not None and isinstance(function.schedule, RowSchedule) else None

    def _operator_class(self, flow: Dataflow, name: str) -> PortOperator | None:
        """Return the operator class whose output follows from its schedule; None if the behaviour replaces it."""
        function, own = flow[name].fn, self.of(name)
        is_replaced = own.selectivity is not None or own.pairs or own.period_s is not None or bool(own.workload)
        return None if is_replaced or not isinstance(function, PortOperator) else function

    def period_s(self, flow: Dataflow, name: str) -> float | None:
        """Return the period of an operator whose output does not depend on its input; None for other operators."""
        function = self._operator_class(flow, name)
        if function is not None and isinstance(function.schedule, PeriodicSchedule):
            return function.schedule.seconds
        return self.of(name).period_s

    def selectivity(self, flow: Dataflow, name: str) -> Distribution:
        """Return rows out per row in; for an operator class whose schedule is simulated, their mean.

        For an operator with a period, it is the number of rows per period.
        """
        function = self._operator_class(flow, name)
        if function is not None and isinstance(function.schedule, NoSchedule):
            return Fixed(value=0.0)
        if function is not None and isinstance(function.schedule, PeriodicSchedule):
            return self.of(name).emitted
        scheduled = self.schedule(flow, name)
        if scheduled is not None:
            required = scheduled.required
            is_all = isinstance(scheduled.schedule, RowSchedule) and scheduled.schedule.ports is Ports.ALL
            return Fixed(value=self.of(name).emitted.mean / (sum(required) / (1 if is_all else len(required))))
        declared = flow[name].selectivity
        return self.of(name).selectivity or Fixed(value=1.0 if declared is None else declared)

    def check(self, flow: Dataflow) -> None:
        """Raise BehaviourError if a value is invalid or does not fit the dataflow."""
        for name, operator in self.operators.items():
            if name not in flow or flow[name].kind is Kind.SOURCE:
                raise BehaviourError(
                    f"The behaviour names '{name}', which is not an operator of dataflow '{flow.name}'."
                )
            _check_operator(flow, name, operator)
        for name, source in self.sources.items():
            if name not in flow or flow[name].kind is not Kind.SOURCE:
                raise BehaviourError(f"The behaviour names '{name}', which is not a source of '{flow.name}'.")
            _check_source(name, source)
        _check_cluster(self.cluster)
        _check_seconds("fixed_s", self.change.fixed_s)
        _check_seconds("seconds_per_state_mb", self.change.seconds_per_state_mb)
        _check_batch(self.batch)
        _check_seconds("row_s", self.thread.row_s)
        _check_seconds("replica_s", self.thread.replica_s)
        _check_seconds("send_s", self.thread.send_s)
        if self.thread.queue_rows is not None and self.thread.queue_rows < 1:
            raise BehaviourError(
                f"queue_rows is {self.thread.queue_rows}; it must be at least 1, or null for no limit."
            )


def _check_seconds(field: str, seconds: float) -> None:
    if not 0 <= seconds <= LARGEST:
        raise BehaviourError(f"{field} is {seconds}; it must be a number of seconds from 0 to {LARGEST:g}.")


def _check_cluster(cluster: SimulatedCluster) -> None:
    _check_seconds("start_up_s", cluster.start_up_s)
    if cluster.slots_per_executor < 1:
        raise BehaviourError(f"slots_per_executor is {cluster.slots_per_executor}; an executor needs at least 1 slot.")
    if cluster.placement not in PLACEMENTS:
        raise BehaviourError(f"There is no placement '{cluster.placement}'; use one of {', '.join(PLACEMENTS)}.")
    mean_s = cluster.mean_time_to_failure_s
    if mean_s is not None and not mean_s > 0:
        raise BehaviourError(f"mean_time_to_failure_s is {mean_s}; it must be above 0, or null for no failures.")


def _check_batch(batch: SimulatedBatchCosts) -> None:
    _check_seconds("batch_s", batch.batch_s)
    _check_seconds("task_s", batch.task_s)
    _check_seconds("trigger_s", batch.trigger_s)
    if batch.max_rows is not None and batch.max_rows < 1:
        raise BehaviourError(f"max_rows is {batch.max_rows}; a batch needs at least 1 row, or null for no limit.")
    if batch.target_s is not None and not batch.target_s > 0:
        raise BehaviourError(f"target_s is {batch.target_s}; it must be above 0, or null for no target.")
    if not batch.poll_s > 0:
        raise BehaviourError(f"poll_s is {batch.poll_s}; it must be above 0.")


def _check_operator(flow: Dataflow, name: str, operator: OperatorBehaviour) -> None:
    consumers = {consumer.name for consumer in flow.consumers(name)}
    for target, share in operator.routes.items():
        if target not in consumers:
            raise BehaviourError(
                f"Operator '{name}' routes rows to '{target}', which does not read it. Its consumers are "
                f"{', '.join(sorted(consumers))}."
            )
        if not 0 <= share <= 1:
            raise BehaviourError(f"Operator '{name}' routes a share of {share} to '{target}'; it must be 0 to 1.")
    total = math.fsum(operator.routes.values())
    if total > 1.0 + 1e-9:
        raise BehaviourError(
            f"The routes of operator '{name}' add up to {total:g}; the sum must not exceed 1. Omit routes to send "
            "every row to every consumer."
        )
    if len(consumers) == 1 and operator.routes and total < 1.0 - 1e-9:
        raise BehaviourError(
            f"Operator '{name}' routes a share of {total:g} to its only consumer; set its selectivity instead."
        )
    if operator.buffer_rows is not None and operator.buffer_rows < 1:
        raise BehaviourError(
            f"buffer_rows of operator '{name}' is {operator.buffer_rows}; it must be at least 1, or null for no limit."
        )
    if operator.period_s is not None and not 0 < operator.period_s <= LARGEST:
        raise BehaviourError(
            f"period_s of operator '{name}' is {operator.period_s}; it must be a number of seconds above 0, or null if "
            "the output depends on the input."
        )
    if operator.period_s is not None and operator.workload:
        raise BehaviourError(
            f"Operator '{name}' has both 'period_s' and 'workload'; an output once per period does not depend on the "
            "input. Remove one of them."
        )
    for factor in operator.workload:
        if not 0 <= factor <= LARGEST:
            raise BehaviourError(f"A workload factor of operator '{name}' is {factor}; it must be 0 to {LARGEST:g}.")
    if operator.workload_rows < 1:
        raise BehaviourError(f"workload_rows of operator '{name}' is {operator.workload_rows}; it must be at least 1.")
    if not 0 <= operator.cpu_share <= 1:
        raise BehaviourError(f"cpu_share of operator '{name}' is {operator.cpu_share}; it must be 0 to 1.")
    for field in ("keys", "zipf", "state_rows", "state_bytes"):
        value = getattr(operator, field)
        if not 0 <= value <= 1e18:
            raise BehaviourError(f"{field} of operator '{name}' is {value}; it must be a number from 0 to 1e+18.")
    if operator.pairs and len(flow[name].inputs) < 2:
        raise BehaviourError(f"Operator '{name}' pairs rows but has only one input; pairing needs at least 2 inputs.")


def _check_source(name: str, source: SourceBehaviour) -> None:
    if source.rates is not None:
        times = [from_s for from_s, _ in source.rates]
        if not times or times[0] != 0 or any(after <= before for before, after in pairwise(times)):
            raise BehaviourError(
                f"The rates of source '{name}' have the times {times}; they must start at second 0 and ascend."
            )
        for _, rate in source.rates:
            if not 0 <= rate <= LARGEST:
                raise BehaviourError(f"A rate of source '{name}' is {rate}; it must be a number from 0 to {LARGEST:g}.")
        if source.repeat_s is not None and source.repeat_s <= times[-1]:
            raise BehaviourError(
                f"repeat_s of source '{name}' is {source.repeat_s}; it must exceed the time of the last rate."
            )
    for field, mean in (("interarrival", source.interarrival.mean), ("batch", source.batch.mean)):
        if not mean > 0:
            raise BehaviourError(f"The mean of {field} of source '{name}' is {mean}; it must be above 0.")


_FREE = OperatorBehaviour()
_PLAIN = SourceBehaviour()
