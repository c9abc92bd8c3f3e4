"""`penstock.compare_policies`: all policies on the same simulated applications, loads, first plans and seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.input_files import read_text
from penstock.api.policy_options import PolicyOptions, controller_settings, create_policy
from penstock.api.simulation import ENGINES as SIMULATED_ENGINES
from penstock.control.policies.catalogue import POLICIES

if TYPE_CHECKING:
    from penstock.control.arena.comparison import ArenaResult

APPLICATIONS = ("video", "patterns")
ENGINES = SIMULATED_ENGINES[:2]
_WINDOWS_AFTER_TRACE = 10
_WORKERS = 5  # Stela adds as many tasks per round as the cluster of the DRS paper has workers.


def compare_policies(
    *,
    applications: Sequence[str] = APPLICATIONS,
    engines: Sequence[str] = ENGINES,
    slots: int = 22,
    starts: int = 5,
    windows: int = 150,
    window_s: float = 30.0,
    trace: str | Path | None = None,
    seed: int = 0,
    progress: Callable[[Sequence[Any], str], Iterable[Any]] = lambda steps, label: steps,
    on_result: Callable[[ArenaResult], None] = lambda result: None,
) -> list[ArenaResult]:
    """Simulate every policy from the same first plans, and compare the result with the best of all plans.

    Args:
        applications: Applications of the DRS paper: "video", "patterns".
        engines: Simulated engines: "row-by-row", "micro-batch".
        slots: Number of slots that a plan may use.
        starts: Number of first plans: one replica per operator, and random plans.
        windows: Number of windows for each policy and first plan.
        window_s: Length of a window.
        trace: CSV file (time_s,rate), scaled so that its last rate is the application's own. The default is a constant
            rate.
        seed: Seed of the random numbers.
        progress: Wraps the steps of the simulation, such as `rich.progress.track`.
        on_result: Called after each application and engine.
    """
    from penstock.control.arena.comparison import ArenaOptions
    from penstock.control.arena.comparison import compare_policies as compare
    from penstock.control.simulation import Duration
    from penstock.planning.trace import parse_trace

    load = None if trace is None else parse_trace(read_text(Path(trace)), source=str(trace))
    if load is not None:
        windows = max(windows, math.ceil(len(load.rates) * load.interval_s / window_s) + _WINDOWS_AFTER_TRACE)
    arena = ArenaOptions(
        slots=slots, starts=starts, duration=Duration(windows=windows, window_s=window_s), seed=seed, trace=load
    )
    names = [
        name
        for name, entry in POLICIES.items()
        if not (entry.sets_executors or entry.needs_profile or entry.needs_curves)
    ]
    options = [_options(name, slots, window_s) for name in names]
    results = []
    for engine in engines:
        settings = controller_settings(options[0], window_s=window_s, micro_batch=engine == "micro-batch")
        for application in applications:
            policies = [create_policy(option) for option in options]
            results.append(compare(application, engine, policies, settings, arena, progress))
            on_result(results[-1])
    return results


def _options(name: str, slots: int, window_s: float) -> PolicyOptions:
    """Return the same options for every policy, except its name."""
    return PolicyOptions(
        policy=name,
        mode="active",
        max_slots=slots,
        cooldown_s=2 * window_s,
        windows=4,
        warm_up_s=window_s,
        workers=_WORKERS,
    )
