"""Policy auto on Spark: three applications under two traces of ten minutes, with a latency target and a limit.

python -m benchmarks.auto_spark [--minutes 10] [--only lookups] [--loads ramp,waves]

Each application waits for each row, as a call to an external service does, so that a machine with few cores can use 16
slots. The cost of the policy is compared with the smallest fixed plan for the peak, which follows from the wait.
The output is compared with the rows that the source has generated.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec
import pandas as pd

import penstock
from penstock.dataflow import Dataflow
from penstock.plan import default_plan
from penstock.planning.plan_outcome import PlanOutcome

WAIT_S = 0.02
PEAK_PER_S = 240.0
SLOTS = 16
TARGET_S = 6.0
SETTLED_SHARE = 0.25  # part of a trace that ends with its first ramp
BUSY = 0.8  # share of the time in which the fixed plan works at the peak
STEP_S = 5.0
_PART = 0.97  # of the rows of a trace, so that the source ends within it

LATE, COST, ERROR, COVERED = 0.05, 0.75, 0.20, 0.80  # bars


def _wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return {"n": row["n"], "k": row["n"] % 50}


def _same(frame: Any) -> Any:
    return frame


def _even(frame: Any) -> Any:
    return frame.where("n % 2 = 0")


def _source(flow: Dataflow, rows: int) -> Any:
    generated = penstock.generate(lambda n: n, schema="n bigint", rows_per_s=PEAK_PER_S * 0.25, rows=rows)
    source = flow.source("rows", generated)
    return source.rows("lookup", _wait, "n bigint, k bigint")


def lookups(out: Path, rows: int) -> Dataflow:
    flow = Dataflow("lookups")
    _source(flow, rows).sink("out", penstock.parquet(str(out)))
    return flow


def filtered(out: Path, rows: int) -> Dataflow:
    flow = Dataflow("filtered")
    even = _source(flow, rows).stateless("even", _even, columns=["n", "k"])
    even.stateless("kept", _same, columns=["n", "k"]).sink("out", penstock.parquet(str(out)))
    return flow


def deduplicated(out: Path, rows: int) -> Dataflow:
    """An operator with state behind the calls."""
    flow = Dataflow("deduplicated")
    once = _source(flow, rows).keyed("once", lambda frame: frame.dropDuplicates(["n"]), keys=["n"], columns=["n", "k"])
    once.sink("out", penstock.parquet(str(out)))
    return flow


APPLICATIONS: dict[str, Callable[[Path, int], Dataflow]] = {
    "lookups": lookups,
    "filtered": filtered,
    "deduplicated": deduplicated,
}


def ramp(share: float) -> float:
    """Rise to the peak within a quarter of the time, stay, and fall."""
    if share < 0.25:
        return 0.25 + 3.0 * share
    return 1.0 if share < 0.5 else 0.3


def waves(share: float) -> float:
    return 0.6 - 0.4 * math.cos(4.0 * math.pi * share)


LOADS = {"ramp": ramp, "waves": waves}


class Outcome(NamedTuple):
    application: str
    load: str
    late: float  # share of the windows after the first ramp
    cost: float  # slot-seconds relative to the fixed plan for the peak
    errors: tuple[float, ...]  # of the predicted latency, one for each change that was evaluated
    covered: int
    predicted: int
    rows: int
    exact: bool


def fixed_slots() -> int:
    """Return the replicas that the peak keeps busy for at most BUSY of the time."""
    return math.ceil(PEAK_PER_S * WAIT_S / BUSY)


def run_once(application: str, load: str, seconds: float) -> Outcome:
    """Run an application under a load, and compare its output with its input."""
    with tempfile.TemporaryDirectory() as directory:
        at, out = Path(directory) / "run", Path(directory) / "out"
        shares = [LOADS[load](at_s / seconds) for at_s in range(int(seconds))]
        rows = round(_PART * PEAK_PER_S * sum(shares))
        flow = APPLICATIONS[application](out, rows)
        first = default_plan(flow, slots=SLOTS, replicas={"lookup": 4})
        with penstock.run(
            flow,
            at=at,
            master=f"local[{SLOTS}]",
            plan=first,
            latency_s=TARGET_S,
            max_slots=SLOTS,
            mode="active",
        ) as run:
            began_s = time.monotonic()
            while (share := (time.monotonic() - began_s) / seconds) < 1.0:
                run.set_rate("rows", PEAK_PER_S * LOADS[load](share))
                time.sleep(STEP_S)
            run.set_rate("rows", PEAK_PER_S)  # the last rows, if any are left
            run.wait_until_idle(timeout_s=300.0)
            windows, changes = run.windows(), run.decision_rows(changes_only=True)[0]
            slots_by_window = _used_slots(run)
        written = pd.read_parquet(out)["n"]
        exact = sorted(written) == list(range(0, rows, 2 if application == "filtered" else 1))
    start = windows["start"].iloc[0] + pd.Timedelta(seconds=SETTLED_SHARE * seconds)
    counted = windows[windows["start"] >= start]
    known = counted["latency_mean_s"].dropna()
    judged = [row for _, row in changes if row.expected and row.observed and row.verdict in ("kept", "fell short")]
    pairs = [
        (row.expected, row.observed)
        for row in judged
        if row.expected is not None
        and row.observed is not None
        and row.expected.latency_s is not None
        and row.observed.latency_s is not None
    ]
    return Outcome(
        application=application,
        load=load,
        late=float((known > TARGET_S).mean()) if len(known) else 1.0,
        cost=slots_by_window / fixed_slots(),
        errors=tuple(abs(seen.latency_s / wanted.latency_s - 1.0) for wanted, seen in pairs),  # type: ignore[operator]
        covered=sum(_within(wanted, seen) for wanted, seen in pairs),
        predicted=len(pairs),
        rows=len(written),
        exact=bool(exact),
    )


def _within(expected: PlanOutcome, observed: PlanOutcome) -> bool:
    return (expected.low_s or 0.0) <= (observed.latency_s or 0.0) <= (expected.high_s or math.inf)


def _used_slots(run: penstock.RunRecord) -> float:
    """Return the mean number of slots that the plans use, over time."""
    operators = run.operators()
    widest = operators.groupby(["window", "pipeline"])["replicas"].max().groupby("window").sum()
    return float(widest.mean())


def text(results: list[Outcome]) -> str:
    lines = ["application   load    late    cost  exact  rows  error of predictions  intervals correct"]
    for run in results:
        error = f"{median(run.errors):.0%}" if run.errors else "-"
        lines.append(
            f"{run.application:13} {run.load:7} {run.late:6.1%} {run.cost:6.2f}  {run.exact!s:5} {run.rows:6} "
            f"{error:>10} {run.covered}/{run.predicted}"
        )
    errors = [error for run in results for error in run.errors]
    covered, predicted = sum(run.covered for run in results), sum(run.predicted for run in results)
    lines += [
        f"late windows after the first ramp <= {LATE:.0%}: {sum(run.late <= LATE for run in results)}/{len(results)}",
        f"slot-seconds / fixed plan <= {COST}: {sum(run.cost <= COST for run in results)}/{len(results)}",
        f"exact: {sum(run.exact for run in results)}/{len(results)}",
        f"median error of predictions <= {ERROR:.0%}: {f'{median(errors):.0%}' if errors else 'no evaluated change'}",
        f"intervals correct >= {COVERED:.0%}: {covered} of {predicted}",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", default=",".join(APPLICATIONS))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for application in given.only.split(","):
        for load in given.loads.split(","):
            results.append(run_once(application, load, 60.0 * given.minutes))
            print(text(results[-1:]).splitlines()[1], flush=True)
    if given.json:
        given.json.write_bytes(msgspec.json.encode(results))
    print(text(results))


if __name__ == "__main__":
    main()
