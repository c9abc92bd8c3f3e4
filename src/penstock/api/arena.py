"""`penstock.arena`: all policies on generated dataflows, under different loads, on both simulated engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.api.policy_options import OptionError, PolicyOptions, controller_settings, create_policy
from penstock.control.policies.catalogue import POLICIES
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.control.arena.cases import Case, Cell
    from penstock.control.arena.clairvoyant import PlanSchedule
    from penstock.control.arena.fixed_plans import HindsightPlans
    from penstock.control.arena.matches import Match

SHAPES = ("chain", "diamond", "loop", "join", "single", "skewed")
LOADS = ("flat", "step", "ramp", "spike", "sine", "noise", "day", "bursts")
ENGINES = ("row-by-row", "micro-batch")
WITHOUT_POLICY = "none"  # the first plan is kept
ARENA_POLICIES = (
    *(name for name, entry in POLICIES.items() if not (entry.needs_profile or entry.needs_curves)),
    WITHOUT_POLICY,
)
DEVELOPMENT_SEEDS, HELD_OUT_SEEDS = (1, 3), (2, 4)
MATCHES_FILE = "matches.jsonl"

Progress = Callable[[int, int], None]  # cells that are done, and all cells


@checked_types(OptionError)
def arena(
    at: str | Path,
    *,
    policies: Sequence[str] = ARENA_POLICIES,
    shapes: Sequence[str] = SHAPES,
    loads: Sequence[str] = LOADS,
    engines: Sequence[str] = ENGINES,
    seeds: Sequence[int] = DEVELOPMENT_SEEDS,
    jobs: int = 1,
    progress: Progress = lambda done, total: None,
) -> list[Match]:
    """Simulate policies for two hours on generated dataflows, under several loads and on both engines.

    The latency target of a case is twice the latency of its fastest fixed plan. Costs are compared with the cheapest
    fixed plan in hindsight, and with the cheapest schedule of plans that knows the load in advance. Windows of the
    first ten minutes do not count.

    Results are kept in `at` as soon as a cell is complete. A cell that it contains is not simulated again.

    Args:
        at: Directory of the results.
        policies: Names of policies; "none" keeps the first plan.
        shapes: Shapes of the dataflows.
        loads: Loads over two hours.
        engines: Simulated engines.
        seeds: Each seed and shape is one dataflow.
        jobs: Number of processes.
        progress: Called after each cell.

    Returns:
        One result per policy and cell.
    """
    from penstock.control.arena.cases import Cell

    for given, known in ((policies, ARENA_POLICIES), (shapes, SHAPES), (loads, LOADS), (engines, ENGINES)):
        if unknown := [name for name in given if name not in known]:
            raise OptionError(f"'{unknown[0]}' is unknown here; use one of {', '.join(known)}.")
    if jobs < 1:
        raise OptionError(f"jobs is {jobs}; it must be at least 1.")
    directory = local_directory(at)
    directory.mkdir(parents=True, exist_ok=True)
    _end_last_line(directory / MATCHES_FILE)
    cells = [
        Cell(shape=shape, load=load, engine=engine, seed=seed)
        for seed, shape, load, engine in product(seeds, shapes, loads, engines)
    ]
    known_matches = arena_matches(directory)
    done = {(match.cell, match.policy) for match in known_matches}
    missing = {cell: [name for name in policies if (cell, name) not in done] for cell in cells}
    open_cells = [(cell, names) for cell, names in missing.items() if names]
    progress(len(cells) - len(open_cells), len(cells))
    with (directory / MATCHES_FILE).open("a") as output:
        for number, played in enumerate(_played(open_cells, directory, jobs), start=1):
            known_matches.extend(played)
            output.write("".join(msgspec.json.encode(match).decode() + "\n" for match in played))
            output.flush()
            progress(len(cells) - len(open_cells) + number, len(cells))
    wanted = set(cells)
    return [match for match in known_matches if match.cell in wanted and match.policy in policies]


def arena_matches(at: str | Path) -> list[Match]:
    """Return the results that a directory contains. An incomplete last line (after a crash) is left out."""
    from penstock.control.arena.matches import Match

    file = local_directory(at) / MATCHES_FILE
    matches = []
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            matches.append(msgspec.json.decode(line, type=Match))
        except msgspec.DecodeError:
            continue
    return matches


def _end_last_line(file: Path) -> None:
    """End the last line of a file: after a crash in the middle of a line, the next result would be added to it."""
    if file.exists() and (content := file.read_bytes()) and not content.endswith(b"\n"):
        with file.open("ab") as output:
            output.write(b"\n")


def _write(file: Path, content: bytes) -> None:
    """Write a file in one step: a crash, or another process with the same cell, leaves no incomplete file."""
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.replace(file)


def _played(open_cells: list[tuple[Cell, list[str]]], at: Path, jobs: int) -> Iterable[list[Match]]:
    if jobs == 1 or len(open_cells) == 1:
        yield from (cell_matches(cell, names, at) for cell, names in open_cells)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(cell_matches, cell, names, at) for cell, names in open_cells]
        try:
            for future in as_completed(waiting):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def cell_matches(cell: Cell, policies: Sequence[str], at: Path) -> list[Match]:
    """Return the results of policies on a cell. The plans in hindsight are kept in a file."""
    from penstock.control.arena.cases import WINDOW_S, Case
    from penstock.control.arena.matches import play

    case = Case(cell=cell)
    reference, schedule = hindsight(case, at)
    results = []
    for policy in policies:
        options = _options(policy, case, reference)
        settings = controller_settings(options, window_s=WINDOW_S, micro_batch=case.micro_batch)
        match = play(create_policy(options), case, reference, schedule, settings)
        results.append(msgspec.structs.replace(match, policy=policy))
    return results


def hindsight(case: Case, at: Path) -> tuple[HindsightPlans, PlanSchedule]:
    """Return the best plans of a case in hindsight, from a file or from simulations."""
    from penstock.control.arena.clairvoyant import Clairvoyant, PlanSchedule
    from penstock.control.arena.fixed_plans import FixedPlans, HindsightPlans

    cell = case.cell
    name = f"{cell.shape}-{cell.seed}-{cell.load}-{cell.engine}"
    plans_file, schedule_file = at / f"{name}.json", at / f"{name}-schedule.json"
    if plans_file.exists():
        reference = msgspec.json.decode(plans_file.read_bytes(), type=HindsightPlans)
    else:
        reference = FixedPlans(case).reference()
        _write(plans_file, msgspec.json.encode(reference))
    if schedule_file.exists():
        return reference, msgspec.json.decode(schedule_file.read_bytes(), type=PlanSchedule)
    schedule = Clairvoyant(case=case, reference=reference).schedule()
    _write(schedule_file, msgspec.json.encode(schedule))
    return reference, schedule


def _options(policy: str, case: Case, reference: HindsightPlans) -> PolicyOptions:
    """Return the options of a policy: the target and the limit, if it accepts them."""
    if policy == WITHOUT_POLICY:
        return PolicyOptions(policy="threshold", mode="off", max_slots=case.slots, micro_batch=case.micro_batch)
    entry = POLICIES[policy]
    options = PolicyOptions(
        policy=policy,
        mode="active",
        micro_batch=case.micro_batch,
        latency_s=reference.target_s if entry.has_latency_target else None,
        max_slots=None if entry.sets_executors else case.slots,
        executors=(1, case.slots) if entry.sets_executors else None,
    )
    options.check()
    return options
