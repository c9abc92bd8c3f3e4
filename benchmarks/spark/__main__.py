"""What Penstock costs on Spark, in ratios within one run: `python -m benchmarks.spark [--json] [--only PART]`.

Both sides of a ratio read the same source and do the same work; "hand-written" is what a user would write by hand.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from rich.console import Console

from benchmarks.figures import Row, shown
from benchmarks.spark.cuts import cuts
from benchmarks.spark.overhead import overhead
from benchmarks.spark.pauses import pauses
from benchmarks.spark.throughput import default_confs, word_count

PARTS = {"word-count": word_count, "overhead": overhead, "pauses": pauses, "cuts": cuts}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--default-confs", action="store_true", help="Only word count on Spark's default confs.")
    given = parser.parse_args()
    if given.default_confs:
        print(default_confs(given.master))
        return
    rows: list[Row] = []
    for name, part in PARTS.items():
        if given.only in (None, name):
            print(f"{name} ...", file=sys.stderr, flush=True)
            rows += part(given.master)
    shutil.rmtree("spark-warehouse", ignore_errors=True)
    if given.json:
        print(json.dumps(rows))
    else:
        Console(width=120).print(shown(rows))


if __name__ == "__main__":
    main()
