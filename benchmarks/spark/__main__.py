"""Overhead of Penstock on Spark, as ratios within one run: `python -m benchmarks.spark [--json] [--only PART]`.

Both sides of a ratio read the same source and do the same work; "hand-written" is a plain PySpark query.
"""

from __future__ import annotations

import argparse
import shutil

from benchmarks.figures import print_all
from benchmarks.spark.barrier import barrier
from benchmarks.spark.cuts import cuts
from benchmarks.spark.overhead import overhead
from benchmarks.spark.pauses import pauses
from benchmarks.spark.throughput import default_confs, word_count

PARTS = {"word-count": word_count, "overhead": overhead, "pauses": pauses, "cuts": cuts, "barrier": barrier}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument(
        "--default-confs", action="store_true", help="Run only word count with Spark's default configuration."
    )
    given = parser.parse_args()
    if given.default_confs:
        print(default_confs(given.master))
        return
    print_all(PARTS, given.only, given.master, as_json=given.json)
    shutil.rmtree("spark-warehouse", ignore_errors=True)


if __name__ == "__main__":
    main()
