"""Operator classes for tests, and a naive reference that knows nothing of the code under test."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import penstock


@penstock.operator(outputs=1, schema="key bigint, call bigint, port int, ports string")
class Recorder:
    """Emits what each invocation receives: its number for the key, and the numbers of the rows by port."""

    def schedule(self, config: Mapping[str, Any]) -> Any:
        when = {"all": penstock.when_all, "any": penstock.when_any}[config["ports"]]
        return when(rows=config["rows"], count=config["count"])

    def invoke(self, ctx: Any) -> None:
        ctx.state["calls"] = ctx.state.get("calls", 0) + 1
        received = [[row["n"] for row in ctx.rows(port)] for port in range(ctx.inputs)]
        port = -1 if ctx.port is None else ctx.port
        ctx.emit({"key": ctx.key.get("key"), "call": ctx.state["calls"], "port": port, "ports": str(received)})


Batches = Sequence[Sequence[tuple[int, int, int]]]


def naive_calls(ports: str, count: str, rows: Sequence[int], batches: Batches) -> list[tuple[int, int, int, str]]:
    """Return (key, number of the call, port, rows) of all invocations for batches of (port, key, n), in order of keys.

    After each batch, rows are taken one invocation at a time, until too few are left.
    """
    return naive_calls_within(ports, count, rows, batches, limit=10_000, drops_oldest=False)[0]


def naive_calls_within(
    ports: str, count: str, rows: Sequence[int], batches: Batches, *, limit: int, drops_oldest: bool
) -> tuple[list[tuple[int, int, int, str]], int]:
    """Return the invocations and the number of dropped rows, if `limit` rows may wait per key and port."""
    dropped = 0
    keys = sorted({key for batch in batches for _, key, _ in batch})
    calls = []
    for key in keys:
        queues: list[list[int]] = [[] for _ in rows]
        number = 0
        for batch in batches:
            if not any(of == key for _, of, _ in batch):
                continue
            for port, of, n in batch:
                if of == key:
                    queues[port].append(n)
            while True:
                full = [port for port, queue in enumerate(queues) if len(queue) >= rows[port]]
                if not full or (ports == "all" and len(full) < len(rows)):
                    break
                served = full[:1] if ports == "any" else full
                least = min(map(len, queues))
                received: list[list[int]] = [[] for _ in rows]
                for port in served:
                    take = {"exact": rows[port], "at least": len(queues[port]), "equal": least}[count]
                    received[port], queues[port] = queues[port][:take], queues[port][take:]
                number += 1
                calls.append((key, number, served[0] if ports == "any" else -1, str(received)))
            dropped += sum(max(0, len(queue) - limit) for queue in queues)
            queues = [queue[-limit:] if drops_oldest else queue[:limit] for queue in queues]
    return calls, dropped


@penstock.operator(inputs=2, schema="key bigint, row string")
class Echo:
    """Emits the text of each row."""

    def invoke(self, ctx: Any) -> None:
        ctx.emit({"key": ctx.key["key"], "row": repr(sorted(ctx.row.items()))})


@penstock.operator(schema=["key bigint, n bigint", "n bigint, text string"], outputs=["even", "odd"])
class Divided:
    """Sends rows to one of two output ports, and adds a line to a file when a task ends."""

    def __init__(self, closed: str = os.devnull) -> None:
        self.closed = closed

    def close(self) -> None:
        with Path(self.closed).open("a") as file:
            file.write("divided\n")

    def invoke(self, ctx: Any) -> None:
        n = ctx.row["n"]
        if n % 2 == 0:
            ctx.emit({"key": ctx.row["key"], "n": n}, port=0)
        else:
            ctx.emit({"n": n, "text": str(n)}, port=1)


@penstock.operator(schema="key bigint, rows bigint, is_multiple boolean")
class Clock:
    """Counts rows, and emits the count periodically until 20 rows have arrived. It adds a line when a task ends."""

    def __init__(self, closed: str = os.devnull) -> None:
        self.closed = closed

    def close(self) -> None:
        with Path(self.closed).open("a") as file:
            file.write("clock\n")

    def schedule(self, config: Mapping[str, Any]) -> Any:
        return penstock.every(config["seconds"])

    def invoke(self, ctx: Any) -> None:
        count = ctx.state["count"] = ctx.state.get("count", 0) + len(ctx.rows())
        milliseconds = round(ctx.now.timestamp() * 1000)
        is_multiple = milliseconds % round(1000 * ctx.config["seconds"]) == 0
        ctx.emit({"key": ctx.key["key"], "rows": count, "is_multiple": is_multiple})
        if count >= 20:
            ctx.state.clear()  # no more invocations, so that the run becomes idle


@penstock.operator(schema="n bigint")
class Scheduled:
    """An operator with any schedule, which emits a row for each invocation."""

    def schedule(self, config: Mapping[str, Any]) -> Any:
        return config["when"]

    def invoke(self, ctx: Any) -> None:
        ctx.emit({"n": sum(len(ctx.rows(port)) for port in range(ctx.inputs))})


@penstock.operator(schema="n bigint")
class Failing:
    """Fails at the row 7."""

    def invoke(self, ctx: Any) -> None:
        ctx.emit({"n": 1 // (ctx.row["n"] - 7)})


@penstock.operator(schema="n bigint")
class Storing:
    """Stores a value that cannot be stored."""

    def invoke(self, ctx: Any) -> None:
        ctx.state["seen"] = {ctx.row["n"]}
