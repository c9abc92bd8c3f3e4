"""Sums over the windows of a trial: throughput, latency, and the use of each region."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operators import Kind
from penstock.dataflow.regions import Region
from penstock.measure.window import PipelineWindow, Window
from penstock.store import ProfiledRegion
from penstock.study.stepwise.operator_capacity import operator_capacity


def _zeros() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class TrialSums:
    """Add windows, then read the results. All sums start at 0."""

    flow: Dataflow
    seconds: float = 0.0
    rows_in: defaultdict[str, float] = field(default_factory=_zeros)  # by operator
    busy_s: defaultdict[str, float] = field(default_factory=_zeros)  # by operator
    waiting_row_s: defaultdict[str, float] = field(default_factory=_zeros)  # by operator: rows x seconds
    batch_s: defaultdict[str, float] = field(default_factory=_zeros)  # by pipeline
    latency_rows: float = 0.0
    latency_row_s: float = 0.0
    pipelines: dict[str, PipelineWindow] = field(default_factory=dict)
    ended_before_s: Mapping[str, float] = field(default_factory=dict)  # end of the last batch before, by pipeline
    ended_s: dict[str, float] = field(default_factory=dict)  # end of the last batch, by pipeline, as far as known

    def add(self, window: Window) -> None:
        seconds = window.end_s - window.start_s
        self.seconds += seconds
        for operator in window.operators:
            rows = operator.rows_in or 0
            self.rows_in[operator.operator] += rows
            self.busy_s[operator.operator] += (operator.seconds_per_row or 0.0) * rows
            self.waiting_row_s[operator.operator] += (operator.backlog_rows or 0) * seconds
        for pipeline in window.pipelines:
            self.pipelines[pipeline.pipeline] = pipeline
            self.batch_s[pipeline.pipeline] += pipeline.batches * (pipeline.batch_s or 0.0)
            if pipeline.last_batch_ended_s is not None:
                self.ended_s[pipeline.pipeline] = pipeline.last_batch_ended_s
        if window.latency is not None:
            self.latency_rows += window.latency.rows
            self.latency_row_s += window.latency.rows * window.latency.mean_s

    @property
    def latency_s(self) -> float | None:
        return self.latency_row_s / self.latency_rows if self.latency_rows else None

    def rows_per_s(self, visits: Mapping[str, float], ignored: Collection[str]) -> float | None:
        """Return the external rows/s of the slowest pipeline or operator; None if they are unknown.

        Rows of a batch are counted at its end, so they are divided by the duration of the batches. `ignored` are the
        operators whose input does not grow with the input of the dataflow. If the ends of batches are known, the rows
        of the last pipelines are divided by the time between these ends, which includes the time between batches.
        """
        if self.ended_before_s:
            return self._committed_rows_per_s(visits, ignored)
        rates = []
        for pipeline in self.pipelines.values():
            inputs = [name for name in self._inputs(pipeline) if name not in ignored]
            share = sum(visits[name] for name in inputs)
            if share <= 0:
                continue
            if not any(self.batch_s.values()):
                operators = [name for name in pipeline.operators if name not in ignored and visits[name] > 0]
                rates += [self.rows_in[name] / visits[name] / self.seconds for name in operators]
            elif self.batch_s[pipeline.pipeline] > 0:
                rates.append(sum(self.rows_in[name] for name in inputs) / self.batch_s[pipeline.pipeline] / share)
            else:
                return None
        return min(rates, default=None) or None

    def _committed_rows_per_s(self, visits: Mapping[str, float], ignored: Collection[str]) -> float | None:
        rates = []
        for pipeline in self._last_pipelines(ignored):
            inputs = [name for name in self._inputs(pipeline) if name not in ignored]
            share = sum(visits[name] for name in inputs)
            if share <= 0:
                continue
            began_s, ended_s = self.ended_before_s.get(pipeline.pipeline), self.ended_s.get(pipeline.pipeline)
            if began_s is None or ended_s is None or ended_s <= began_s:
                return None
            rates.append(sum(self.rows_in[name] for name in inputs) / (ended_s - began_s) / share)
        return min(rates, default=None) or None

    def _last_pipelines(self, ignored: Collection[str]) -> list[PipelineWindow]:
        """Return the pipelines whose output no other pipeline reads, or only one whose operators are ignored."""
        counted = [pipe for pipe in self.pipelines.values() if not set(pipe.operators) <= set(ignored)]
        return [
            pipe
            for pipe in counted
            if not any(
                before in pipe.operators
                for other in counted
                if other is not pipe
                for name in other.operators
                if name not in ignored
                for before in self.flow[name].inputs
            )
        ]

    def region(self, region: Region, replicas: int) -> ProfiledRegion:
        """Return the time of a row in a region, waiting included, and the capacity of the region (Equation 2)."""
        rows, busy_s = self.rows_in[region.name], sum(self.busy_s[name] for name in region.operators)
        if not rows:
            return ProfiledRegion(latency_s=0.0, capacity=0.0)
        capacity = operator_capacity(latency_s=busy_s / rows, executed_rows=rows, window_s=self.seconds, tasks=replicas)
        own_s = busy_s / rows
        return ProfiledRegion(latency_s=own_s + self._waiting_s(region), capacity=capacity, processing_s=own_s)

    def _waiting_s(self, region: Region) -> float:
        """Return the time that a row waits for a region, by Little's law: waiting rows / rows per second.

        Inside a query that processes batches, rows wait for the whole query.
        """
        queue = [region.name]
        if any(self.batch_s.values()):
            queue = self._inputs(next(pipe for pipe in self.pipelines.values() if region.name in pipe.operators))
        rows = sum(self.rows_in[name] for name in queue)
        return sum(self.waiting_row_s[name] for name in queue) / rows if rows else 0.0

    def _inputs(self, pipeline: PipelineWindow) -> list[str]:
        """Return the operators through which rows enter a pipeline."""
        return [
            name
            for name in pipeline.operators
            if self.flow[name].kind is Kind.SOURCE
            or any(before not in pipeline.operators for before in self.flow[name].inputs)
        ]
