"""The meter: counts of a simulation, put together into the windows that the Spark engine gives."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.dataflow import Dataflow, Kind, Operator, regions
from penstock.engines.simulated.behaviour import Behaviour
from penstock.engines.simulated.histogram import latency_of
from penstock.engines.simulated.world import World
from penstock.measure.estimators import ratio, scv, true_rate
from penstock.measure.window import OperatorWindow, PipelineWindow, Window
from penstock.plan import Pipeline, Plan, pipelines


class Meter:
    def __init__(self, flow: Dataflow, behaviour: Behaviour, world: World, *, micro_batches: bool) -> None:
        self._flow = flow
        self._behaviour = behaviour
        self._world = world
        self._micro_batches = micro_batches
        self._index = {operator.name: i for i, operator in enumerate(flow.operators)}
        self._region = {name: region.name for region in regions(flow) for name in region.operators}
        self._before = world.counts.copy()
        self._since_s = world.now_s

    def window(self, plan: Plan, generation: int, epoch_s: float) -> Window:
        counts, before = self._world.counts, self._before
        now = self._world.now_s
        span = max(now - self._since_s, 1e-9)
        names = counts.operators.dtype.names or ()
        lately = {name: counts.operators[name] - before.operators[name] for name in names}
        waiting = self._world.waiting()
        stays, sums = counts.stays - before.stays, counts.stay_sum - before.stay_sum
        external = sum(
            int(lately["arrived"][self._index[one.name]]) for one in self._flow.operators if one.kind is Kind.SOURCE
        )
        found = pipelines(self._flow, plan)
        of = {name: pipeline for pipeline in found for name in pipeline.operators}
        window = Window(
            start_s=epoch_s + self._since_s,
            end_s=epoch_s + now,
            generation=generation,
            external_rows_per_s=ratio(external, span),
            latency=latency_of(stays, float(sums[0]), float(sums[1])),
            pipelines=tuple(self._pipeline(pipeline, plan, lately, waiting) for pipeline in found),
            operators=tuple(
                self._operator(one, of[one.name], plan, lately, waiting, span) for one in self._flow.operators
            ),
        )
        counts.operators["batch_longest_s"] = 0.0
        # A whole window without a row is a load of nothing, not a time between two rows of the next one.
        still = counts.operators["last_s"] <= self._since_s
        counts.operators["last_s"][still] = now
        self._before, self._since_s = counts.copy(), now
        return window

    def _operator(
        self,
        operator: Operator,
        pipeline: Pipeline,
        plan: Plan,
        lately: Mapping[str, np.ndarray],
        waiting: np.ndarray,
        span: float,
    ) -> OperatorWindow:
        at = self._index[operator.name]
        total = self._world.counts.operators[at]
        is_source, is_sink = operator.kind is Kind.SOURCE, operator.kind is Kind.SINK
        rows_in, rows_out = int(lately["rows_in"][at]), int(lately["rows_out"][at])
        busy_s = float(lately["busy_s"][at])
        cost = None if is_source else ratio(busy_s, rows_in)
        replicas = None if is_source else plan.replicas[self._region[operator.name]]
        arrived = int(lately["arrived"][at]) if self._has_queue(operator, plan) else rows_in
        state = self._behaviour.of(operator.name).state_bytes if operator.kind.has_state else None
        return OperatorWindow(
            operator=operator.name,
            pipeline=pipeline.name,
            replicas=replicas,
            rows_in_total=int(total["rows_in"]),
            rows_out_total=None if is_sink else int(total["rows_out"]),
            rows_in=rows_in,
            rows_out=None if is_sink else rows_out,
            input_rows_per_s=arrived / span,
            processed_rows_per_s=rows_in / span,
            true_rows_per_s=true_rate(cost),
            selectivity=None if is_sink else ratio(rows_out, rows_in),
            seconds_per_row=cost,
            utilisation=busy_s / (replicas * span) if replicas else None,
            backlog_rows=self._backlog(operator, plan, waiting),
            state_rows=None,
            state_bytes=state,
            arrival_scv=scv(arrived, span, float(lately["gap_s2"][at])),
            service_scv=None
            if not cost
            else ratio(float(lately["spread_s2"][at]) / cost**2, int(lately["served"][at])),
            sent=self._behaviour.of(operator.name).routes or None,
        )

    def _has_queue(self, operator: Operator, plan: Plan) -> bool:
        """Rows come to it through a queue, a log or a channel, and not from its own replica's last operator."""
        if operator.kind is Kind.SOURCE or any(name in plan.cuts for name in operator.inputs):
            return True
        fused = [self._region[name] == self._region[operator.name] for name in operator.inputs]
        return not self._micro_batches and not any(fused)

    def _backlog(self, operator: Operator, plan: Plan, waiting: np.ndarray) -> int | None:
        """Rows waiting for it. Those read from a source but waiting behind it count as the source's too, as on Spark,
        where a row is in the source until an operator takes it."""
        if not self._has_queue(operator, plan):
            return None
        rows = int(waiting[self._index[operator.name]])
        if operator.kind is Kind.SOURCE and operator.name not in plan.cuts and not self._micro_batches:
            rows += sum(int(waiting[self._index[one.name]]) for one in self._flow.consumers(operator.name))
        return rows

    def _pipeline(
        self, pipeline: Pipeline, plan: Plan, lately: Mapping[str, np.ndarray], waiting: np.ndarray
    ) -> PipelineWindow:
        own = [self._flow[name] for name in pipeline.operators]
        entrances = [one for one in own if one.kind is Kind.SOURCE or any(name in plan.cuts for name in one.inputs)]
        exit_at = self._index[pipeline.output]
        batches = int(lately["batches"][exit_at])
        backlog = [self._backlog(one, plan, waiting) or 0 for one in entrances]
        busy = float(sum(lately["busy_s"][self._index[one.name]] for one in own))
        return PipelineWindow(
            pipeline=pipeline.name,
            operators=pipeline.operators,
            batches=batches,
            rows_in=sum(int(lately["rows_in"][self._index[one.name]]) for one in entrances),
            batch_s=ratio(float(lately["batch_s"][exit_at]), batches),
            batch_max_s=float(self._world.counts.operators["batch_longest_s"][exit_at]) if batches else None,
            phases_s={},
            busy_s=float(lately["task_s"][exit_at]) if self._micro_batches else busy,
            backlog_rows=sum(backlog),
        )
