"""Converts the counts of a simulation into windows, as the Spark engine measures them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.dataflow import Dataflow, Kind, Operator, regions
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.compiled.counts import latency_between
from penstock.engines.simulated.simulation import SimulationMode
from penstock.measure.estimators import ratio, scv, true_rate
from penstock.measure.window import CallWindow, OperatorWindow, PipelineWindow, Window
from penstock.plan import Pipeline, Plan, pipelines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interval:
    """The counts of a simulation between two windows, under the current plan."""

    plan: Plan
    span_s: float
    counts: dict[str, np.ndarray]  # field of COUNT -> value by operator
    waiting_rows: np.ndarray  # by operator
    counted_s: np.ndarray  # by operator: the time that its counts refer to


class SimulationMeter:
    """Measures one simulation. Each window starts where the previous one ended."""

    def __init__(
        self, flow: Dataflow, behaviour: Behaviour, simulation: SimulationMode, *, is_micro_batch: bool
    ) -> None:
        self._flow = flow
        self._behaviour = behaviour
        self._simulation = simulation
        self._is_micro_batch = is_micro_batch
        self._index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self._region = {name: region.name for region in regions(flow) for name in region.operators}
        self._before = simulation.counts.snapshot()
        self._since_s = simulation.now_s
        self._counted_until_s = simulation.counted_until_s()

    def window(self, plan: Plan, generation: int, epoch_s: float) -> Window:
        """Return the window since the last call."""
        counts, before, now_s = self._simulation.counts, self._before, self._simulation.now_s
        fields = counts.operators.dtype.names or ()
        counted_before_s, self._counted_until_s = self._counted_until_s, self._simulation.counted_until_s()
        interval = _Interval(
            plan=plan,
            span_s=max(now_s - self._since_s, 1e-9),
            counts={field: counts.operators[field] - before.operators[field] for field in fields},
            waiting_rows=self._simulation.waiting_rows(),
            counted_s=self._counted_until_s - counted_before_s,
        )
        sources = [operator.name for operator in self._flow.operators if operator.kind is Kind.SOURCE]
        external_rows = sum(int(interval.counts["arrived"][self._index[name]]) for name in sources)
        own_pipelines = pipelines(self._flow, plan)
        pipeline_of = {name: pipeline.name for pipeline in own_pipelines for name in pipeline.operators}
        window = Window(
            start_s=epoch_s + self._since_s,
            end_s=epoch_s + now_s,
            generation=generation,
            external_rows_per_s=ratio(external_rows, interval.span_s),
            latency=latency_between(before, counts),
            pipelines=tuple(self._pipeline(pipeline, interval) for pipeline in own_pipelines),
            operators=tuple(
                self._operator(operator, pipeline_of[operator.name], interval) for operator in self._flow.operators
            ),
        )
        counts.operators["batch_longest_s"] = 0.0
        # A whole window without arrivals is a load of 0, not a gap between two arrivals of the next window.
        without_arrivals = counts.operators["last_arrival_s"] <= self._since_s
        counts.operators["last_arrival_s"][without_arrivals] = now_s
        self._before, self._since_s = counts.snapshot(), now_s
        return window

    def _operator(self, operator: Operator, pipeline: str, interval: _Interval) -> OperatorWindow:
        at, counts, span_s = self._index[operator.name], interval.counts, interval.span_s
        total = self._simulation.counts.operators[at]
        behaviour = self._behaviour.of(operator.name)
        counted_s = float(interval.counted_s[at])
        is_source, is_sink = operator.kind is Kind.SOURCE, operator.kind is Kind.SINK
        rows_in, rows_out, busy_s = int(counts["rows_in"][at]), int(counts["rows_out"][at]), float(counts["busy_s"][at])
        replicas = None if is_source else interval.plan.replicas[self._region[operator.name]]
        if replicas is not None and not self._is_micro_batch:
            # The time of the slot, which all its threads use.
            busy_s *= replicas / sum(interval.plan.bundles(operator.name, replicas))
        cost_s = None if is_source else ratio(busy_s, rows_in)
        arrived = int(counts["arrived"][at]) if self._has_queue(operator, interval.plan) else rows_in
        service_scv = None
        if cost_s:
            service_scv = ratio(float(counts["spread_s2"][at]) / cost_s**2, int(counts["services"][at]))
        return OperatorWindow(
            operator=operator.name,
            pipeline=pipeline,
            replicas=replicas,
            rows_in_total=int(total["rows_in"]),
            rows_out_total=None if is_sink else int(total["rows_out"]),
            rows_in=rows_in,
            rows_out=None if is_sink else rows_out,
            input_rows_per_s=arrived / span_s,
            processed_rows_per_s=rows_in / span_s,
            true_rows_per_s=true_rate(cost_s),
            selectivity=None if is_sink else ratio(rows_out, rows_in),
            seconds_per_row=cost_s,
            utilisation=ratio(busy_s, replicas * counted_s) if replicas else None,
            utilisation_s=counted_s if self._is_micro_batch else None,
            backlog_rows=self._backlog_rows(operator, interval),
            state_rows=behaviour.state_rows if operator.kind.has_state else None,
            state_bytes=behaviour.state_bytes if operator.kind.has_state else None,
            arrival_scv=scv(arrived, span_s, float(counts["gap_s2"][at])),
            service_scv=service_scv,
            sent=behaviour.routes or None,
            overhead=float(counts["entry_s"][at]) / (replicas * span_s) if replicas else None,
            calls=self._calls(operator, at, interval),
        )

    def _calls(self, operator: Operator, at: int, interval: _Interval) -> CallWindow | None:
        """Return the concurrent calls; None for an operator without threads. No simulated call fails.

        A row waits in the queue of the operator, or in the task of a batch. The fluid simulation has no calls.
        """
        bundles = interval.plan.threads.get(operator.name)
        if bundles is None:
            return None
        called_s, active_s, waited_s = (
            float(interval.counts[name][at]) for name in ("called_s", "active_s", "waited_s")
        )
        rows = int(interval.counts["rows_in"][at])
        calls = rows if called_s else 0
        none = CallWindow.none(bundles if isinstance(bundles, int) else round(sum(bundles) / len(bundles)))
        return msgspec.structs.replace(
            none,
            calls=calls,
            in_flight=ratio(called_s, active_s),
            call_s=ratio(called_s, calls),
            wait_s=ratio(waited_s, calls),
        )

    def _is_pipeline_input(self, operator: Operator, plan: Plan) -> bool:
        return operator.kind is Kind.SOURCE or any(name in plan.cuts for name in operator.inputs)

    def _has_queue(self, operator: Operator, plan: Plan) -> bool:
        """Return whether rows wait for the operator in a queue, log or channel.

        Otherwise it processes the rows of the preceding operator in the same replica or batch.
        """
        if self._is_pipeline_input(operator, plan):
            return True
        is_fused = any(self._region[name] == self._region[operator.name] for name in operator.inputs)
        return not self._is_micro_batch and not is_fused

    def _backlog_rows(self, operator: Operator, interval: _Interval) -> int | None:
        """Return the rows that wait for an operator.

        Rows in the queues of a source's consumers count as backlog of the source too. This matches Spark, where a row
        is in the source until a batch takes it.
        """
        plan, waiting_rows = interval.plan, interval.waiting_rows
        if not self._has_queue(operator, plan):
            return None
        rows = int(waiting_rows[self._index[operator.name]])
        if operator.kind is Kind.SOURCE and operator.name not in plan.cuts and not self._is_micro_batch:
            consumers = self._flow.consumers(operator.name)
            rows += sum(int(waiting_rows[self._index[consumer.name]]) for consumer in consumers)
        return rows

    def _pipeline(self, pipeline: Pipeline, interval: _Interval) -> PipelineWindow:
        counts = interval.counts
        own = [self._flow[name] for name in pipeline.operators]
        inputs = [operator for operator in own if self._is_pipeline_input(operator, interval.plan)]
        last = self._index[pipeline.output]
        batches = int(counts["batches"][last])
        longest_s = float(self._simulation.counts.operators["batch_longest_s"][last])
        busy_s = float(sum(counts["busy_s"][self._index[operator.name]] for operator in own))
        return PipelineWindow(
            pipeline=pipeline.name,
            operators=pipeline.operators,
            batches=batches,
            rows_in=sum(int(counts["rows_in"][self._index[operator.name]]) for operator in inputs),
            batch_s=ratio(float(counts["batch_s"][last]), batches),
            batch_max_s=longest_s if batches else None,
            phases_s={},
            busy_s=float(counts["task_s"][last]) if self._is_micro_batch else busy_s,
            backlog_rows=sum(self._backlog_rows(operator, interval) or 0 for operator in inputs),
        )
