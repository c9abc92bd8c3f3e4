"""Measures of policy auto on generated dataflows, loads and both simulated engines, against the best fixed plans.

python -m benchmarks.auto [--seeds 1,3] [--shapes chain,loop] [--loads flat,noise] [--policies auto,drs] [--at DIR]

Odd seeds are for development, even seeds are held out. The target of a case is twice the latency of its fastest fixed
plan. Windows of the first ten minutes do not count, because no policy knows the costs at the start. Results are added
to DIR/matches.jsonl; cells that it contains are not simulated again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import msgspec

from penstock.api.policy_options import PolicyOptions, controller_settings, create_policy
from penstock.control.arena.cases import WINDOW_S, Case, Cell
from penstock.control.arena.fixed_plans import FixedPlans, HindsightPlans
from penstock.control.arena.generated import SHAPES
from penstock.control.arena.loads import LOADS
from penstock.control.arena.matches import Match, play
from penstock.control.policies.catalogue import POLICIES
from penstock.engines.simulated import Mode

ENGINES = (str(Mode.ROW_BY_ROW), str(Mode.MICRO_BATCH))
STEADY, CHANGING = ("flat", "noise", "sine", "day"), ("step", "ramp", "spike", "bursts")


def options_of(policy: str, case: Case, reference: HindsightPlans) -> PolicyOptions:
    """Return the options of a policy: the target and the limit, or the one of them that it accepts."""
    entry = POLICIES[policy]
    return PolicyOptions(
        policy=policy,
        mode="active",
        micro_batch=case.micro_batch,
        latency_s=reference.target_s if entry.has_latency_target else None,
        max_slots=None if entry.has_latency_target and not entry.has_target_and_limit else case.slots,
    )


def matches_of(cell: Cell, policies: Sequence[str], at: Path) -> list[Match]:
    """Return the results of the policies on one cell; the reference of the cell is kept in a file."""
    case = Case(cell=cell)
    file = at / f"{cell.shape}-{cell.seed}-{cell.load}-{cell.engine}.json"
    if file.exists():
        reference = msgspec.json.decode(file.read_bytes(), type=HindsightPlans)
    else:
        reference = FixedPlans(case).reference()
        file.write_bytes(msgspec.json.encode(reference))
    results = []
    for policy in policies:
        options = options_of(policy, case, reference)
        options.check()
        settings = controller_settings(options, window_s=WINDOW_S, micro_batch=case.micro_batch)
        results.append(play(create_policy(options), case, reference, settings))
    return results


def known_matches(file: Path) -> list[Match]:
    if not file.exists():
        return []
    return [msgspec.json.decode(line, type=Match) for line in file.read_text().splitlines()]


def line(name: str, matches: Sequence[Match]) -> str:
    late = sorted(match.late for match in matches)
    cost = sorted(match.relative_cost for match in matches)
    covered, predicted = (sum(match.coverage[part] for match in matches) for part in (0, 1))
    return (
        f"{name:34} {len(matches):5} {late[len(late) // 2]:7.1%} {late[-1]:7.1%} "
        f"{sum(share <= 0.01 for share in late) / len(late):7.0%} {cost[len(cost) // 2]:6.2f} {cost[-1]:6.2f} "
        f"{max(match.changes for match in matches) / 2:6.1f} {max(match.late_changes for match in matches):6} "
        f"{sum(match.unbounded for match in matches):5} {f'{covered}/{predicted}':>8}"
    )


def table(matches: Iterable[Match]) -> str:
    """Return one line per policy, engine and load."""
    rows = [
        f"{'policy, engine, load':34} cases  late: median, worst, <= 1 %;  slot-hours / cheapest fixed: median, worst; "
        "changes per hour: most, after the first hour; unbounded; intervals correct"
    ]
    groups: dict[tuple[str, str, str], list[Match]] = {}
    for match in matches:
        groups.setdefault((match.policy, match.cell.engine, match.cell.load), []).append(match)
    rows += [line(f"{policy}, {engine}, {load}", scores) for (policy, engine, load), scores in sorted(groups.items())]
    return "\n".join(rows)


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
    given.at.mkdir(parents=True, exist_ok=True)
    file = given.at / "matches.jsonl"
    policies = given.policies.split(",")
    known = known_matches(file)
    done = {(match.cell, match.policy) for match in known}
    cells = [
        Cell(shape=shape, load=load, engine=engine, seed=int(seed))
        for seed, shape, load, engine in product(
            given.seeds.split(","), given.shapes.split(","), given.loads.split(","), given.engines.split(",")
        )
    ]
    open_cells = [(cell, [name for name in policies if (cell, name) not in done]) for cell in cells]
    open_cells = [(cell, names) for cell, names in open_cells if names]
    with ProcessPoolExecutor(given.jobs) as pool, file.open("a") as output:
        waiting = [pool.submit(matches_of, cell, names, given.at) for cell, names in open_cells]
        for number, future in enumerate(as_completed(waiting), start=1):
            for match in future.result():
                known.append(match)
                output.write(msgspec.json.encode(match).decode() + "\n")
                output.flush()
            print(f"\r{number} of {len(waiting)} cells", end="", file=sys.stderr, flush=True)
    wanted = set(cells)
    print("\n" + table(match for match in known if match.cell in wanted and match.policy in policies))


if __name__ == "__main__":
    main()
