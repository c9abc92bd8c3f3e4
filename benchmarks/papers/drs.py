"""Figures and table II of Fu et al., "DRS", ToN 25(6), 2017, section V, in simulation. `drs_runs` has the runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.models_queueing import three
from benchmarks.papers.drs_costs import with_measured_costs
from benchmarks.papers.drs_runs import (
    ALLOCATIONS,
    LONG,
    SHORT,
    STARTS,
    Counts,
    behaviour_of,
    bulk,
    cost_of_change,
    engine_on,
    passive,
    rebalanced,
    stepped,
)
from benchmarks.papers.results import Figure, ResultRow
from penstock.measure.smoothing import MovingAverage
from penstock.measure.window import Window
from penstock.planning.processors import assign_processors

TITLE = "DRS: results"
INTRODUCTION = (
    "[DRS](drs.md) explains the method and the differences. `benchmarks/papers/drs_runs.py` lists the values that the "
    "paper omits. The service rates were chosen so that the best allocation is the published one; latencies are "
    "therefore not comparable, but their order is."
)
NAMES = {"video": "logo detection", "patterns": "frequent patterns"}
TABLE_2_MS = {12: 0.083, 24: 0.158, 48: 0.323, 96: 0.665, 192: 1.250}
MEASUREMENT_MS = 0.100
RUNS = 100_000
BULK_COUNTS: tuple[Counts, ...] = ((2, 4, 1), (3, 3, 1))


def _row(figure: str, subject: str, paper: str, penstock: str, engine: str = "simulation, row-by-row") -> ResultRow:
    return ResultRow(
        figure=f"{figure}: {subject}",
        paper=paper,
        penstock=penstock,
        engine=engine,
        command=f"python -m benchmarks.papers drs --figure {figure}",
    )


def _text(counts: Counts) -> str:
    return f"({':'.join(map(str, counts))})"


def figure_6() -> list[ResultRow]:
    rows = []
    for application, allocations in ALLOCATIONS.items():
        for number, counts in enumerate(allocations):
            run = passive(application, counts)
            text = f"mean {run.latency.mean_s:.3g} s, sd {run.latency.sd_s:.3g} s"
            paper = "recommended; lowest mean and standard deviation" if number == 0 else "higher"
            subject = f"{NAMES[application]} {_text(counts)}, 10 minutes"
            rows.append(_row("6", subject, paper, f"{text}; recommends {_text(run.recommended)}"))
    return rows


def figure_7() -> list[ResultRow]:
    rows = []
    for application, allocations in ALLOCATIONS.items():
        pairs = [(passive(application, counts), counts) for counts in allocations]
        predicted = ["growing" if run.predicted_s is None else f"{run.predicted_s:.3g}" for run, _ in pairs]
        texts = [
            f"{_text(counts)} {text} / {run.latency.mean_s:.3g}"
            for text, (run, counts) in zip(predicted, pairs, strict=True)
        ]
        stable = [run for run, _ in pairs if run.predicted_s is not None]
        correlation = np.corrcoef([run.predicted_s for run in stable], [run.latency.mean_s for run in stable])[0, 1]
        paper = "accurate, slightly low" if application == "video" else "low, but in the right order"
        text = f"{', '.join(texts)}; correlation {correlation:.2f}"
        rows.append(_row("7", f"{NAMES[application]}, predicted / measured latency in s", paper, text))
    return rows


def figure_8() -> list[ResultRow]:
    rows = []
    for application, starts in STARTS.items():
        for start in starts:
            run = rebalanced(application, start)
            best = start == starts[0]
            paper = "no change" if best else f"change to {_text(starts[0])} in minute 14, the earliest one"
            when = "no change" if run.changed_min is None else f"change in minute {run.changed_min}"
            text = f"{when}; ends with {_text(run.final)}; {run.before_s:.3g} s before, {run.after_s:.3g} s after"
            rows.append(_row("8", f"{NAMES[application]} from {_text(start)}, T_ra 14 minutes", paper, text))
    return rows


def figure_9() -> list[ResultRow]:
    paper = {
        ("long", 6): "added in minute 12 (two executors), released in 26, added in 35",
        ("long", 3): "added in minute 9, released in 24, added",
        ("short", 6): "no change",
        ("short", 3): "added in minute 9, released in 15",
    }
    rows = []
    for name, legs, minutes in (("long", LONG, 40), ("short", SHORT, 25)):
        for w in (6, 3):
            changes = stepped(legs, w, minutes)
            text = "; ".join(f"{reason} in minute {minute}: {_text(counts)}" for minute, reason, counts in changes)
            rows.append(_row("9", f"{name}-term changes of the rate, w = {w}", paper[name, w], text or "no change"))
    for adding, published in ((True, "more than 3000 ms"), (False, "about 600 ms")):
        cost_ms = 1000 * float(np.mean([cost_of_change(adding=adding, seed=seed) for seed in range(10)]))
        subject = f"higher mean latency in the minute of {'adding' if adding else 'removing'} two executors"
        rows.append(_row("9", subject, published, f"{cost_ms:.0f} ms (mean of 10 runs)"))
    return rows


def figure_10() -> list[ResultRow]:
    rows = []
    for letter, rate in (("a", 5.0), ("b", 6.0)):
        for counts in BULK_COUNTS:
            run = bulk(rate, counts)
            text = f"measured {run.measured_s:.2f} s, M/M/k {run.predicted_s['mmk']:.2f} s, "
            text += f"GI/G/k {run.predicted_s['gigk']:.2f} s"
            paper = "M/M/k too low, GI/G/k closer"
            rows.append(_row("10", f"({letter}) {rate:g} frames/s, {_text(counts)}, 7 slots", paper, text))
        chosen = bulk(rate, BULK_COUNTS[0]).chosen
        text = f"M/M/k {_text(chosen['mmk'])}, GI/G/k {_text(chosen['gigk'])}"
        paper = "M/M/k (3:3:1), GI/G/k (2:4:1), which is the best"
        rows.append(_row("10", f"({letter}) choice of each model", paper, text))
    return rows


def measured_windows() -> list[Window]:
    """Return five windows of the logo detection."""
    engine = engine_on("video", behaviour_of("video"), (10, 11, 1))
    engine.start()
    windows = []
    for _ in range(5):
        engine.advance(60.0)
        windows.append(engine.observe())
    return windows


def mean_us(call: Callable[[], object], runs: int) -> float:
    """Return the CPU time of a call in microseconds, as the mean of all runs."""
    began = time.process_time()
    for _ in range(runs):
        call()
    return 1e6 * (time.process_time() - began) / runs


def table_2() -> list[ResultRow]:
    network, windows = three(), measured_windows()
    rows = []
    for slots, published in TABLE_2_MS.items():
        text = f"{mean_us(partial(assign_processors, network, slots), RUNS):.1f} microseconds"
        subject = f"scaling with K_max = {slots}, mean of {RUNS:,} runs"
        rows.append(_row("table-2", subject, f"{1000 * published:.0f} microseconds", text, "models"))
    smoothed = partial(MovingAverage(5).smoothed, windows)
    text = f"{mean_us(smoothed, RUNS):.1f} microseconds (five windows smoothed)"
    subject = f"measurement, any K_max, mean of {RUNS:,} runs"
    return [*rows, _row("table-2", subject, f"{1000 * MEASUREMENT_MS:.0f} microseconds", text, "models")]


def measured_costs() -> list[ResultRow]:
    """Return the costs of the real applications, and figures 6 and 7 with these costs."""
    rows = []
    for application, name in NAMES.items():
        costs, best = with_measured_costs(application)
        for cost in costs:
            text = f"{1e6 * cost.seconds_per_row:.1f} microseconds per row"
            text += "" if cost.scv is None else f", SCV {cost.scv:.2f}"
            text += f"; {cost.selectivity:.3g} rows out per row ({min(cost.emitted)} to {max(cost.emitted)})"
            rows.append(_row("costs", f"{name}, measured cost of {cost.operator}", "-", text, "this process"))
        others = [
            f"{_text(counts)} {'growing' if predicted is None else f'{predicted:.3g}'} / {best.measured_s[counts]:.3g}"
            for counts, predicted in best.predicted_s.items()
        ]
        text = f"recommends {_text(best.counts)}, number {best.rank} of {len(others)}; {', '.join(others)}"
        subject = f"{name} with the measured costs, predicted / measured latency in s, 22 slots"
        rows.append(_row("costs", subject, "figure 6: the recommended allocation is the best", text))
    return rows


FIGURES: dict[str, Figure] = {
    "6": figure_6,
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "table-2": table_2,
    "costs": measured_costs,
}
