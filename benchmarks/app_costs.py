"""Costs of the two applications of the DRS paper, per frame and per row, in one process.

    python -m benchmarks.app_costs [--frames 100] [--messages 20000] [--window 50000]

Rows pass through the row functions of the applications one at a time, without Spark. The numbers depend on the machine;
the ratios, the variability and the rows per row do not.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.apps import logos, patterns
from penstock.measure.estimators import scv


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """Seconds per row of an operator, their variability, and the rows that it emits."""

    operator: str
    rows: int
    seconds_per_row: float
    scv: float | None
    emitted: tuple[int, ...]  # rows out of each row

    @property
    def selectivity(self) -> float:
        return float(np.mean(self.emitted))


def timed(operator: str, function: Callable[[Any], Sequence[Any]], rows: Iterable[Any]) -> tuple[OperatorCost, list]:
    """Return the cost of a function and all rows that it emits."""
    seconds, counts, emitted = [], [], []
    gc.disable()  # a collection takes as long as thousands of rows
    try:
        for row in rows:
            began = time.thread_time()
            out = function(row)
            seconds.append(time.thread_time() - began)
            counts.append(len(out))
            emitted += out
    finally:
        gc.enable()
    times = np.array(seconds)
    cost = OperatorCost(
        operator=operator,
        rows=len(times),
        seconds_per_row=float(times.mean()),
        scv=scv(len(times), float(times.sum()), float((times**2).sum())),
        emitted=tuple(counts),
    )
    return cost, emitted


def logo_costs(frames: int, detector: logos.Detector) -> list[OperatorCost]:
    """Return the costs of `extract` per frame and of `match` per feature."""
    names = ["frame", "ts", "pixels"]
    rows = [dict(zip(names, logos.generator(n), strict=True)) for n in range(frames + 1)]
    # The first row builds the tables of the logos.
    for feature in logos.extract(rows[0], detector):
        logos.match(feature, detector)
    extract, features = timed("extract", lambda row: list(logos.extract(row, detector)), rows[1:])

    def matches(row: dict[str, Any]) -> list[Any]:
        logo = logos.match(row, detector)
        return [] if logo is None else [logo]

    return [extract, timed("match", matches, features)[0]]


def pattern_costs(messages: int, window: int, threshold: int) -> list[OperatorCost]:
    """Return the costs of `generate` per message, of `detect` per pattern and of `tell` per fact, in a full window."""
    names = ["position", "entering", "leaving"]
    detectors: defaultdict[str, patterns.Detector] = defaultdict(lambda: patterns.Detector(threshold))

    def detect(row: dict[str, Any]) -> list[dict[str, Any]]:
        facts = detectors[row["pattern"]].batch([(row["position"], row["change"])])
        return [{"pattern": row["pattern"], "fact": fact, "position": at} for fact, at in facts]

    facts = []  # of the first messages as well: few patterns change in a large window
    for n in range(window):
        for row in patterns.candidates(dict(zip(names, patterns.generator(n, window), strict=True))):
            facts += detect(row)
    rows = [dict(zip(names, patterns.generator(n, window), strict=True)) for n in range(window, window + messages)]
    generate, moves = timed("generate", lambda row: list(patterns.candidates(row)), rows)
    detected, later = timed("detect", detect, moves)
    facts += later
    return [generate, detected, timed("tell", lambda row: list(patterns.report_to_subsets(row)), facts)[0]]


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100, help="frames of the logo detection")
    parser.add_argument("--messages", type=int, default=20_000, help="messages after the window is full")
    parser.add_argument("--window", type=int, default=50_000, help="messages of the window")
    parser.add_argument("--threshold", type=int, default=2_000, help="messages that make a pattern frequent")
    options = parser.parse_args()
    table = Table("application", "operator", "rows", "microseconds per row", "SCV", "rows out per row", "range")
    parts = {f"logos, {detector}": logo_costs(options.frames, detector) for detector in logos.DETECTORS}
    parts["patterns"] = pattern_costs(options.messages, options.window, options.threshold)
    for application, costs in parts.items():
        for cost in costs:
            low, high = min(cost.emitted), max(cost.emitted)
            variability = "" if cost.scv is None else f"{cost.scv:.2f}"
            numbers = (f"{1e6 * cost.seconds_per_row:.1f}", variability, f"{cost.selectivity:.3g}", f"{low} to {high}")
            table.add_row(application, cost.operator, f"{cost.rows:,}", *numbers)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
