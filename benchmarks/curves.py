"""Curves on Spark: a waiting operator rises, a computing one is flat, and two measurements agree.

`make bench-curves` measures each operator twice and prints the peak rates with their bars. Use an idle machine. Bars:
the waiting operator reaches 3 times its rate with 4 threads, the computing one stays within 20 % of its rate with one
thread, and two measurements of the same point differ by at most 10 %.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import penstock
from penstock.dataflow import Dataflow

THREADS = {"wait": (1, 4), "compute": (1, 2, 4)}
WAIT_S, COMPUTE_S = 0.02, 0.005
WINDOW_S = 1.0
MEASUREMENTS = 2
RISING, FLAT, REPEATED = 3.0, 0.2, 0.1

Peaks = dict[str, dict[int, float]]  # operator -> threads -> rows/s


def wait(row: dict[str, Any]) -> dict[str, Any]:
    time.sleep(WAIT_S)
    return row


def compute(row: dict[str, Any]) -> dict[str, Any]:
    began = time.thread_time()
    while time.thread_time() - began < COMPUTE_S:
        pass
    return row


def flow() -> Dataflow:
    made = penstock.Dataflow("curves")
    numbers = made.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=1_000, rows_per_s=100))
    for name, function in (("wait", wait), ("compute", compute)):
        numbers.rows(name, function, "n bigint", threads=2).sink(f"{name}_out", penstock.noop())
    return made


def measured(folder: Path) -> Peaks:
    peaks: Peaks = {}
    for name, threads in THREADS.items():
        (curve,) = penstock.measure_curves(
            flow(), operators=[name], threads=threads, window_s=WINDOW_S, reuse=(), at=folder / name
        )
        peaks[name] = {peak.threads: peak.rows_per_s for peak in curve.peaks}
        print(f"{name}: " + ", ".join(f"{n} threads {rate:.1f} rows/s" for n, rate in peaks[name].items()), flush=True)
    return peaks


def largest_difference(first: Peaks, second: Peaks) -> float:
    """Return the largest relative difference between two measurements of a point."""
    pairs = [(first[name][n], second[name][n]) for name in first for n in first[name].keys() & second[name].keys()]
    return max(abs(a - b) / ((a + b) / 2) for a, b in pairs)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        first, second = (measured(Path(folder) / str(number)) for number in range(MEASUREMENTS))
    rising = min(peaks["wait"][4] / peaks["wait"][1] for peaks in (first, second))
    flat = max(abs(rate / peaks["compute"][1] - 1) for peaks in (first, second) for rate in peaks["compute"].values())
    repeated = largest_difference(first, second)
    rows = [
        ("waiting operator, 4 threads to one", f"{rising:.2f} x", f"at least {RISING:g} x", rising >= RISING),
        ("computing operator, distance to one thread", f"{flat:.1%}", f"at most {FLAT:.0%}", flat <= FLAT),
        ("two measurements of a point", f"{repeated:.1%}", f"at most {REPEATED:.0%}", repeated <= REPEATED),
    ]
    for name, value, bar, is_met in rows:
        print(f"{name}: {value} (bar: {bar}){'' if is_met else ': NOT MET'}")
    return 0 if all(is_met for *_, is_met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
