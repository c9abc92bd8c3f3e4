"""Profiled plans compared with measured ones on Spark: `python -m benchmarks.profile [--only PART] [--at DIR]`.

The operators wait 5 ms for each row, so that 16 slots are 16 processors also on a small machine. This makes the search
small. A task of an operator with v visits per row processes at most 1 / (5 ms v) rows/s, and all slots together at most
16 / (5 ms x the sum of the visits): no plan exceeds the smaller one of both bounds. A plan whose bound is below 90 % of
the highest one cannot matter, and a task beyond the bound of the slots adds its fixed time to each batch and nothing
else. The search measures the plans between these two limits, and some beyond each of them as a check.

Each part profiles a dataflow, checks that the output under the profiled plan is exact, and then measures this plan and
the candidates with the same number of unfinished rows on one engine. The figures are the throughput of the profiled
plan relative to the best candidate within the latency target, and relative to the bound of the slots, which leaves out
the fixed time of batches. `word_count` is the time that a profile takes from scratch, with the start of Spark. The same
command with `--at` continues a benchmark that was interrupted.

linear     three operators with different keys: 4 (below 90 % of the bound), 5, 6 or 8 tasks each, in one order because
           equal; 12 and 16 tasks for all
diamond    four parallel operators and a merge, which share a query and therefore have equal tasks: 1 to 16
word_count profile on two slots
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from types import ModuleType

import penstock
from benchmarks.figures import Row, print_all, row
from penstock.api.profile_trials import SparkTrials, endless_sources, spark_platform
from penstock.apps.stepwise import diamond, linear, word_count
from penstock.apps.stepwise.work import WAIT_S
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.regions import regions
from penstock.plan import Plan, default_plan
from penstock.study.stepwise.profile import Profile, ProfileProgress
from penstock.study.stepwise.region_graph import region_features
from penstock.study.stepwise.sequential_test import TrialLimits
from penstock.study.stepwise.trial import TrialSettings, measure_trial

SLOTS, LATENCY_S = 16, 2.0
EXACT_ROWS = 500
_LIMITS = TrialLimits(min_windows=5, max_windows=8, max_warm_up=6, tolerance=0.05)


def linear_part(folder: Path) -> list[Row]:
    counts = [*itertools.combinations_with_replacement((4, 5, 6, 8), 3), (12, 12, 12), (16, 16, 16)]
    return _compared(linear, [dict(zip(linear.OPERATORS, each, strict=True)) for each in counts], folder)


def diamond_part(folder: Path) -> list[Row]:
    names = [region.name for region in regions(diamond.flow(work="wait")) if region.kind is not Kind.SOURCE]
    return _compared(diamond, [dict.fromkeys(names, count) for count in (1, 2, 3, 4, 5, 6, 8, 12, 16)], folder)


def word_count_part(folder: Path) -> list[Row]:
    began_s = time.monotonic()
    result = penstock.profile(word_count.flow(), slots=2, at=folder / "word_count", on_progress=_show)
    minutes = (time.monotonic() - began_s) / 60
    return [
        row("word count: duration of a profile", minutes, "min", "<= 10", minutes <= 10),
        row("word count: rounds", len(result.rounds), "rounds"),
        row("word count: throughput", result.rows_per_s, "rows/s"),
    ]


def _compared(app: ModuleType, candidates: list[dict[str, int]], folder: Path) -> list[Row]:
    flow = app.flow(work="wait")
    name, began_s = flow.name, time.monotonic()
    profile = penstock.profile(flow, slots=SLOTS, latency_s=LATENCY_S, at=folder / name, on_progress=_show)
    seconds = time.monotonic() - began_s
    differences = _differences(app, profile.plan)
    plans = [profile.plan, *(default_plan(flow, slots=SLOTS, replicas=each) for each in candidates)]
    measured = _measured(flow, profile, plans, folder / f"{name}-search")
    within = [rate for rate, latency_s in measured if latency_s <= LATENCY_S] or [rate for rate, _ in measured]
    share = measured[0][0] / max(within)
    bound = SLOTS / (WAIT_S * len(app.OPERATORS))  # each row visits each operator once; a merge takes no time
    return [
        row(f"{name}: profiled plan / best of {len(candidates)} candidates", share, "", ">= 0.9", share >= 0.9),
        row(f"{name}: profiled plan / bound of the slots", measured[0][0] / bound, ""),
        row(f"{name}: throughput of the profiled plan", measured[0][0], "rows/s"),
        row(f"{name}: rows that differ from the oracle", len(differences), "rows", "0", not differences),
        row(f"{name}: rounds", len(profile.rounds), "rounds"),
        row(f"{name}: duration of the profile", seconds, "s"),
    ]


def _differences(app: ModuleType, plan: Plan) -> list[str]:
    """Run the plan on a bounded input and compare its output with the oracle."""
    with (
        tempfile.TemporaryDirectory() as at,
        penstock.run(
            app.flow(rows=EXACT_ROWS, work="wait"), master=f"local[{SLOTS}]", at=Path(at) / "run", plan=plan
        ) as run,
    ):
        run.wait_until_idle()
        found: list[str] = app.check(run.rows("out"), EXACT_ROWS, work="wait")
        return found


def _measured(flow: Dataflow, profile: Profile, plans: list[Plan], at: Path) -> list[tuple[float, float]]:
    """Return rows/s and latency of each plan, measured one after another on one engine. Each result is stored."""
    results = at.with_suffix(".json")
    measured = [(rate, latency) for rate, latency in json.loads(results.read_text())] if results.exists() else []
    endless = endless_sources(flow.without_output())
    features = region_features(endless, profile.operators)
    settings = TrialSettings(latency_target_s=LATENCY_S, window_s=LATENCY_S, limits=_LIMITS)
    trials = SparkTrials(endless, spark_platform(SLOTS, None, None), at)
    try:
        for plan in plans[len(measured) :]:
            trial = measure_trial(
                trials.fresh, plan, features, settings, unfinished_rows=profile.unfinished_rows, reference=None
            )
            rate = fmean(trial.rows_per_s)
            print(f"  {plan.replicas}: {rate:,.0f} rows/s, {trial.latency_s:.2f} s", file=sys.stderr, flush=True)
            measured.append((rate, trial.latency_s))
            results.write_text(json.dumps(measured))
    finally:
        trials.close()
    return measured


def _show(progress: ProfileProgress) -> None:
    if progress.round is not None:
        done = progress.round
        print(
            f"  round {done.number}: {done.plan.replicas}, source {done.source_tasks} x {done.throttle:.2f}: "
            f"{done.rows_per_s:,.0f} rows/s, {done.latency_s:.2f} s, {done.verdict or 'first'}",
            file=sys.stderr,
            flush=True,
        )


PARTS = {"word_count": word_count_part, "linear": linear_part, "diamond": diamond_part}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--at", type=Path, help="directory of the studies; default: a temporary one")
    options = parser.parse_args()
    with contextlib.nullcontext(options.at) if options.at else tempfile.TemporaryDirectory() as folder:
        print_all(PARTS, options.only, Path(folder), as_json=options.json)


if __name__ == "__main__":
    main()
