"""Measures of policy auto on generated dataflows, loads and both simulated engines, against plans in hindsight.

python -m benchmarks.auto [--seeds 1,3] [--shapes chain,loop] [--loads flat,noise] [--policies auto,drs] [--at DIR]

Odd seeds are for development; `--held-out` uses even seeds instead. All policies are compared unless some are named.
The last line of the bars is the longest decision for 100 operators, on both kinds of engine. See `penstock.arena`
for the conditions, and `control/arena/standings.py` for the bars. Results are kept in DIR; cells that it contains are
not simulated again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import penstock
from benchmarks.control import OPERATORS, decision_cases, decision_times_ms
from penstock.api.arena import ARENA_POLICIES, DEVELOPMENT_SEEDS, ENGINES, HELD_OUT_SEEDS, LOADS, SHAPES
from penstock.control.arena.standings import Bar, bars
from penstock.report.arena_tables import bars_text, standings_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default=",".join(map(str, DEVELOPMENT_SEEDS)))
    parser.add_argument("--held-out", action="store_true", help="use the seeds that development does not use")
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--policies", default=",".join(ARENA_POLICIES))
    parser.add_argument("--at", type=Path, default=Path("build/bench-auto"))
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    matches = penstock.arena(
        given.at,
        policies=given.policies.split(","),
        shapes=given.shapes.split(","),
        loads=given.loads.split(","),
        engines=given.engines.split(","),
        seeds=HELD_OUT_SEEDS if given.held_out else [int(seed) for seed in given.seeds.split(",")],
        jobs=given.jobs,
        progress=lambda done, total: print(f"\r{done} of {total} cells", end="", file=sys.stderr, flush=True),
    )
    print("\n" + standings_text(matches))
    print(bars_text([*bars(matches), decision_bar()]))


def decision_bar() -> Bar:
    """Return the bar of one decision for many operators, including its row in the store."""
    cases = [case for case in decision_cases() if case[0].startswith("auto")]
    longest = {
        name: max(decision_times_ms(policy, micro_batch, rounds=5)) / 1000.0 for name, policy, micro_batch in cases
    }
    worst = max(longest, key=lambda name: longest[name])
    return Bar(
        measure=f"one decision for {OPERATORS} operators",
        bar="<= 100 ms",
        met=sum(seconds <= 0.1 for seconds in longest.values()),
        cases=len(longest),
        worst=longest[worst],
        worst_cell=worst,
    )


if __name__ == "__main__":
    main()
