"""An engine that behaves like queueing formulas, with any clock, without threads and rows.

Rates, backlogs and latencies follow from arrivals, service times and replicas. A stable region has the steady-state
latency of its queue. An unstable region has a growing backlog and the latency that follows from it. A plan change stops
all regions for a while. The formulas are those of textbooks and do not use the package.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from penstock.dataflow import Dataflow, Kind, PenstockError, regions
from penstock.engines.ports import Applied
from penstock.measure.window import Latency, OperatorWindow, PipelineWindow, Window
from penstock.plan import Plan, diff, pipelines, validated

Rate = Callable[[float], float]  # seconds since the start -> external rows/s
LatencyS = Callable[[str, float, int], float]  # region, rows/s arriving, replicas -> mean latency in the steady state
STEP_S = 5.0


def mmk_latency_s(arrival_per_s: float, service_per_s: float, servers: int) -> float:
    """Return Erlang's delay formula, computed with factorials."""
    load = arrival_per_s / service_per_s
    waiting = load**servers / math.factorial(servers) / (1 - load / servers)
    delayed = waiting / (sum(load**k / math.factorial(k) for k in range(servers)) + waiting)
    return 1 / service_per_s + delayed / (servers * service_per_s - arrival_per_s)


class QueueingEngine:
    """`service_per_s` by region, `selectivity` by operator (1 unless given). All rows enter at the sources."""

    def __init__(
        self,
        flow: Dataflow,
        plan: Plan,
        *,
        clock: Any,
        rate: Rate,
        service_per_s: Mapping[str, float],
        selectivity: Mapping[str, float] | None = None,
        scv: Mapping[str, tuple[float, float]] | None = None,  # region -> measured SCV of arrivals and of service
        latency_s: LatencyS | None = None,
        pause_s: float = 0.0,
        batch_s: float | None = None,  # duration of an empty batch; None: no micro-batches
        replica_s: float = 0.0,
        slower: Callable[[Plan], float] = lambda plan: 1.0,  # a factor on all latencies that no model contains
    ) -> None:
        plan = validated(flow, plan)
        self.flow, self.plan, self.clock = flow, plan, clock
        self.rate, self.service_per_s = rate, dict(service_per_s)
        self.selectivity = dict(selectivity or {})
        self.scv = dict(scv or {})
        self.pause_s, self.batch_s, self.replica_s, self.slower = pause_s, batch_s, replica_s, slower
        self._latency_s = latency_s or (lambda name, arrival, k: mmk_latency_s(arrival, self.service_per_s[name], k))
        self.applied: list[Plan] = []
        self.refused: Callable[[Plan], bool] = lambda plan: False
        self.broken = False  # observe raises
        self.blind = False  # costs are unknown
        self._regions = [region for region in regions(flow) if region.kind is not Kind.SOURCE]
        self._home = {name: region.name for region in self._regions for name in region.operators}
        self._sources = [operator.name for operator in flow.operators if operator.kind is Kind.SOURCE]
        self._backlog = {region.name: 0.0 for region in self._regions}
        self._sent = {region.name: 0.0 for region in self._regions}  # rows/s out of each region in the last step
        self._generation = 1

    @property
    def startup_s(self) -> dict[str, float]:
        return {}

    def start(self) -> None:
        self._began_s = self._since_s = self._seen_s = self.clock.time()
        self._sums: dict[str, float] = {}

    # ---- time

    def _advance(self, *, working: bool = True) -> None:
        while self._seen_s < self.clock.time() - 1e-9:
            step_s = min(STEP_S, self.clock.time() - self._seen_s)
            self._step(self.rate(self._seen_s - self._began_s), step_s, working)
            self._seen_s += step_s

    def _step(self, external: float, step_s: float, working: bool) -> None:
        self._add("external", external * step_s)
        latency = 0.0
        visits = self._visits
        for region in self._regions:
            name, k = region.name, self.plan.replicas[region.name]
            came = sum(
                external / len(self._sources) if producer in self._sources else self._sent[self._home[producer]]
                for producer in self.flow[name].inputs
            )
            able = k * self.service_per_s[name] if working else 0.0
            waiting = self._backlog[name]
            done = min(able, came + waiting / step_s)
            self._backlog[name] = max(0.0, waiting + (came - done) * step_s)
            gain = math.prod(self.selectivity.get(operator, 1.0) for operator in region.operators)
            self._sent[name] = done * gain
            self._add(f"{name}.in", came * step_s)
            self._add(f"{name}.done", done * step_s)
            if working:
                # This close to saturation, a queue would need hours to reach its steady state.
                settles = 0 < came < 0.98 * able
                steady = self._latency_s(name, came, k) if settles else 1 / self.service_per_s[name]
                latency += visits[name] * (steady + self._backlog[name] / able)
        if working and external > 0:
            if self.batch_s is not None:
                latency = self._batches_s(external) + sum(self._backlog.values()) / external
            self._add("rows", external * step_s)
            self._add("latency", latency * self.slower(self.plan) * external * step_s)

    def _add(self, key: str, amount: float) -> None:
        self._sums[key] = self._sums.get(key, 0.0) + amount

    @cached_property
    def _visits(self) -> dict[str, float]:
        """Solve by repeated substitution, which converges because loops return fewer rows than they receive."""
        visits = {region.name: 0.0 for region in self._regions}
        gain = {
            region.name: math.prod(self.selectivity.get(name, 1.0) for name in region.operators)
            for region in self._regions
        }
        for _ in range(60):
            visits = {
                region.name: sum(
                    1 / len(self._sources)
                    if name in self._sources
                    else visits[self._home[name]] * gain[self._home[name]]
                    for name in self.flow[region.name].inputs
                )
                for region in self._regions
            }
        return visits

    # ---- micro-batches: D* = (a + sum b k) / (1 - lambda sum c / k) over a query's stages, 1.5 D* in each query

    def _settled_s(self, external: float, operators: tuple[str, ...]) -> float:
        assert self.batch_s is not None
        names = {self._home[name] for name in operators if name in self._home}
        if not names:  # a source that is copied into a channel
            return self.batch_s
        visits = self._visits
        load = sum(visits[name] / self.service_per_s[name] / self.plan.replicas[name] for name in names)
        fixed = self.batch_s + self.replica_s * sum(self.plan.replicas[name] for name in names)
        return fixed / (1 - external * load) if external * load < 1 else 10.0

    def _batches_s(self, external: float) -> float:
        return sum(1.5 * self._settled_s(external, pipeline.operators) for pipeline in pipelines(self.flow, self.plan))

    # ---- the contract

    def observe(self) -> Window:
        self._advance()
        if self.broken:
            raise PenstockError("the engine does not answer")
        start_s, self._since_s = self._since_s, self._seen_s
        sums, self._sums = self._sums, {}
        span_s = max(self._seen_s - start_s, 1e-9)
        mean_s = sums["latency"] / sums["rows"] if sums.get("rows") else None
        external = sums.get("external", 0.0) / span_s
        return Window(
            start_s=start_s,
            end_s=self._seen_s,
            generation=self._generation,
            external_rows_per_s=external,
            latency=None
            if mean_s is None
            else Latency(
                rows=round(sums["rows"]), mean_s=mean_s, p50_s=0.7 * mean_s, p95_s=3 * mean_s, p99_s=4.6 * mean_s
            ),
            pipelines=self._pipelines(external, span_s) if self.batch_s is not None else (),
            operators=tuple(self._operator(operator.name, sums, span_s) for operator in self.flow.operators),
        )

    def _pipelines(self, external: float, span_s: float) -> tuple[PipelineWindow, ...]:
        windows = []
        for pipeline in pipelines(self.flow, self.plan):
            settled_s = self._settled_s(external, pipeline.operators)
            windows.append(
                PipelineWindow(
                    pipeline=pipeline.name,
                    operators=pipeline.operators,
                    batches=max(1, round(span_s / settled_s)),
                    rows_in=round(external * span_s),
                    batch_s=settled_s,
                    batch_max_s=settled_s,
                    phases_s={},
                    busy_s=None,
                    backlog_rows=0,
                )
            )
        return tuple(windows)

    def _operator(self, name: str, sums: dict[str, float], span_s: float) -> OperatorWindow:
        known: dict[str, Any] = {}
        operator = self.flow[name]
        if operator.kind is Kind.SOURCE:
            came = sums.get("external", 0.0) / span_s / len(self._sources)
            behind = [region.name for region in self._regions if name in self.flow[region.name].inputs]
            read = min((sums.get(f"{region}.done", 0.0) for region in behind), default=0.0) / span_s
            waiting = round(sum(self._backlog[region] for region in behind))
            known |= {
                "input_rows_per_s": came,
                "processed_rows_per_s": read,
                "selectivity": 1.0,
                "backlog_rows": waiting,
            }
        elif operator.kind is Kind.SINK:
            known |= {"replicas": self.plan.replicas[self._home[name]]}
        else:
            region = self._home[name]
            k, done = self.plan.replicas[region], sums.get(f"{region}.done", 0.0) / span_s
            # The first operator of a region does all work; the others cost nothing.
            cost = (1 / self.service_per_s[region]) if name == region else 0.0
            arrival_scv, service_scv = self.scv.get(region, (None, None))
            known |= {
                "replicas": k,
                "input_rows_per_s": sums.get(f"{region}.in", 0.0) / span_s,
                "rows_in": round(done * span_s),
                "processed_rows_per_s": done,
                "true_rows_per_s": 1 / cost if cost else None,
                "selectivity": self.selectivity.get(name, 1.0),
                "seconds_per_row": None if self.blind else cost,
                "utilisation": done * cost / k,
                "backlog_rows": round(self._backlog[region]) if name == region else None,
                "arrival_scv": arrival_scv,
                "service_scv": service_scv,
            }
        return OperatorWindow.knowing(name, "all", **known)

    def apply(self, plan: Plan) -> Applied:
        plan = validated(self.flow, plan)
        if self.refused(plan):
            raise PenstockError("it could not be applied; the old plan is in force again")
        self._advance()
        changed = diff(self.plan, plan)
        self.clock.sleep(self.pause_s)
        self._advance(working=False)
        self.plan = plan
        self.applied.append(plan)
        self._generation += 1
        return Applied(
            plan=plan,
            generation=self._generation,
            changed=str(changed),
            pause_s=self.pause_s,
            stopped=tuple(self._home),
        )

    def set_rate(self, source: str, rows_per_s: float) -> None:
        self._advance()
        self.rate = lambda at_s: rows_per_s

    def recover(self) -> tuple[str, ...]:
        return ()

    def failure(self) -> str | None:
        return None

    def idle(self) -> bool:
        return False

    def stop(self) -> None:
        self._advance()
