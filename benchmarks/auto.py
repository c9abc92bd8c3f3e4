"""Measures of policy auto on generated dataflows, loads and both simulated engines, against plans in hindsight.

python -m benchmarks.auto [--seeds 1,3] [--shapes chain,loop] [--loads flat,noise] [--policies auto,drs] [--at DIR]

Odd seeds are for development, even seeds are held out. See `penstock.arena` for the conditions, and
`control/arena/standings.py` for the bars. Results are kept in DIR; cells that it contains are not simulated again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import penstock
from penstock.api.arena import ENGINES, LOADS, SHAPES
from penstock.control.arena.standings import bars
from penstock.report.arena_tables import bars_text, standings_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,3")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--policies", default="auto")
    parser.add_argument("--at", type=Path, default=Path("build/bench-auto"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    matches = penstock.arena(
        given.at,
        policies=given.policies.split(","),
        shapes=given.shapes.split(","),
        loads=given.loads.split(","),
        engines=given.engines.split(","),
        seeds=[int(seed) for seed in given.seeds.split(",")],
        jobs=given.jobs,
        progress=lambda done, total: print(f"\r{done} of {total} cells", end="", file=sys.stderr, flush=True),
    )
    print("\n" + standings_text(matches))
    print(bars_text(bars(matches)))


if __name__ == "__main__":
    main()
