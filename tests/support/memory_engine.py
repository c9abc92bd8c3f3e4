"""An engine in memory: rows of `generate` sources pass real row functions, as fast as the replicas allow.

It supports chains source -> rows... -> memory sink, and any clock. It uses neither Spark nor threads: calls of
`observe` and `idle` process the rows that the elapsed time allows.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from penstock.dataflow import Dataflow, DataflowError, PenstockError, PlanError, RowFunction, regions
from penstock.dataflow.sources import Generate
from penstock.engines.ports import Applied
from penstock.measure.window import OperatorWindow, Window
from penstock.plan import Plan, default_plan, diff, validated

ROWS_PER_S_A_REPLICA = 100.0


class MemoryEngine:
    def __init__(
        self,
        flow: Dataflow,
        at: Path,
        *,
        master: str = "local[2]",
        plan: Plan | None = None,
        clock: Any = time,
        **_of_spark: Any,
    ) -> None:
        self.flow = flow
        self.plan = plan or default_plan(flow, slots=int(master.removeprefix("local[").removesuffix("]")))
        self.plan = validated(flow, self.plan)
        self.clock = clock
        self.running = False
        self.rows: list[Any] = []  # rows that reached the sink
        self.refuse_slots: int | None = None  # a plan with this number of slots fails and is rolled back
        self.broken: list[Exception] = []  # raised by the next calls of observe
        self.failed: str | None = None
        (self._source,) = (operator for operator in flow.operators if isinstance(operator.source, Generate))
        self._functions = [operator for operator in flow.operators if isinstance(operator.fn, RowFunction)]
        assert isinstance(self._source.source, Generate)
        self._rate = self._source.source.rows_per_s or 0.0
        self._resume = at / "rows_read"
        self._read = int(self._resume.read_text()) if self._resume.exists() else 0
        self._appended = float(self._read)
        self._generation = 1

    @property
    def startup_s(self) -> dict[str, float]:
        return {}

    def start(self) -> None:
        self.running = True
        self._since = self._seen = self.clock.time()
        self._counts = {"read": 0, "written": 0}

    def _work(self) -> None:
        """Append and process the rows that the time since the last call allows."""
        span = self.clock.time() - self._seen
        self._seen += span
        source = self._source.source
        assert isinstance(source, Generate) and self.running
        end = float("inf") if source.rows is None else source.rows
        self._appended = min(self._appended + self._rate * span, end)
        capacity = max(1, round(self._replicas(self._functions[0].name) * ROWS_PER_S_A_REPLICA * span))
        for number in range(self._read, min(int(self._appended), self._read + capacity)):
            row = {self._source.columns[0]: source.fn(number)} if self._source.columns else {}
            for operator in self._functions:
                assert isinstance(operator.fn, RowFunction)
                row = operator.fn.fn(row)
            self.rows.append(row)
            self._read += 1
            self._counts["read"] += 1
            self._counts["written"] += 1
        self._resume.parent.mkdir(parents=True, exist_ok=True)
        beside = self._resume.with_suffix(f".{os.getpid()}")
        beside.write_text(str(self._read))
        beside.replace(self._resume)

    def observe(self) -> Window:
        self._work()
        if self.broken:
            raise self.broken.pop(0)
        start, end = self._since, self._seen
        self._since = end
        span = max(end - start, 1e-9)
        counts, self._counts = self._counts, {"read": 0, "written": 0}
        operators = [
            OperatorWindow.knowing(
                operator.name,
                self.flow.operators[-1].name,
                replicas=None if operator is self._source else self._replicas(operator.name),
                rows_in=counts["read"],
                rows_out=counts["written"],
                rows_in_total=self._read,
                input_rows_per_s=counts["read"] / span,
                backlog_rows=int(self._appended) - self._read if operator is self._source else None,
            )
            for operator in self.flow.operators
        ]
        return Window(
            start_s=start,
            end_s=end,
            generation=self._generation,
            external_rows_per_s=self._rate,
            latency=None,
            pipelines=(),
            operators=tuple(operators),
        )

    def apply(self, plan: Plan) -> Applied:
        plan = validated(self.flow, plan)
        if plan.slots == self.refuse_slots:
            raise PlanError(f"there are no {plan.slots} slots")
        changed = diff(self.plan, plan)
        self._work()
        self.plan = plan
        self._generation += 1
        stopped = (self.flow.operators[-1].name,)
        return Applied(plan=plan, generation=self._generation, changed=str(changed), pause_s=0.0, stopped=stopped)

    def set_rate(self, source: str, rows_per_s: float) -> None:
        if source != self._source.name:
            raise DataflowError(f"'{source}' is no paced source; '{self._source.name}' is")
        self._work()
        self._rate = rows_per_s

    def recover(self) -> tuple[str, ...]:
        return ()

    def failure(self) -> str | None:
        return self.failed

    def idle(self) -> bool:
        self._work()
        source = self._source.source
        assert isinstance(source, Generate)
        return source.rows is not None and self._read == source.rows

    def stop(self) -> None:
        if not self.running:
            raise PenstockError("it is not running")
        self.running = False

    def _replicas(self, operator: str) -> int:
        home = next(region for region in regions(self.flow) if operator in region.operators)
        return self.plan.replicas[home.name]


class FakeClock:
    """A clock that advances only in `sleep`; `at` maps times to actions."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.at: dict[float, Any] = {}

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, seconds: float, /) -> None:
        self.now_s += seconds
        for moment in sorted(time_s for time_s in self.at if time_s <= self.now_s):
            self.at.pop(moment)()
