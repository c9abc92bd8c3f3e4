"""penstock arena: all policies on the same applications, loads, starts and seeds, and one league table."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.policy_options import POLICIES, PolicyOptions, controller_settings, create_policy
from penstock.api.simulation import ENGINES as SIMULATED_ENGINES
from penstock.cli.parameters import Finite

APPLICATIONS = ("video", "patterns")
ENGINES = SIMULATED_ENGINES[:2]
_AFTER = 10  # windows
_WORKERS = 5  # of the cluster on which DRS was measured: Stela adds so many tasks a round


@click.command()
@click.option("--app", "apps", type=click.Choice(APPLICATIONS), multiple=True, help="Which; may be repeated.  [all]")
@click.option("--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="May be repeated.  [both]")
@click.option("--slots", type=click.IntRange(min=3), default=22, show_default=True, help="To be spread.")
@click.option("--starts", type=click.IntRange(min=1), default=5, show_default=True, help="Plans to begin with.")
@click.option("--windows", type=click.IntRange(min=1), default=150, show_default=True, help="Each policy has.")
@click.option("--every", "every_s", type=Finite(min=1), default=30.0, show_default=True, help="A window, in s.")
@click.option("--trace", type=click.Path(path_type=Path), help="CSV: time_s,rate; its last is the app's own.  [steady]")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the first start; each has its own."
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables.")
def command(
    apps: tuple[str, ...],
    engines: tuple[str, ...],
    slots: int,
    starts: int,
    windows: int,
    every_s: float,
    trace: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Let the policies compete: how near the best of all plans they come, in how many changes, and at what cost.

    The first start has one replica each, the others are any plans. The best plan is found by simulating all of them.

    \b
    Example:
      penstock arena
      penstock arena --engine micro-batch --app video --starts 20 --json
      penstock arena --trace day.csv --every 60
    """
    import math
    from collections.abc import Iterable, Sequence
    from typing import Any

    import msgspec
    from rich.console import Console
    from rich.progress import track

    from penstock.api.input_files import read_text
    from penstock.control.arena.comparison import ArenaOptions, compare_policies
    from penstock.control.simulation import Duration
    from penstock.planning.trace import parse_trace
    from penstock.report.arena import table

    progress = Console(stderr=True)

    def watched(steps: Sequence[Any], what: str) -> Iterable[Any]:
        return track(steps, description=what, console=progress)

    course = None if trace is None else parse_trace(read_text(trace), source=str(trace))
    if course is not None:  # to its end, and for a while after it
        windows = max(windows, math.ceil(len(course.rates) * course.interval_s / every_s) + _AFTER)
    options = [_options(name, slots, every_s) for name in POLICIES if name != "mst"]
    found = []
    for engine in engines or ENGINES:
        for app in apps or APPLICATIONS:
            result = compare_policies(
                app,
                engine,
                [create_policy(each) for each in options],
                controller_settings(options[0], window_s=every_s, micro_batch=engine == "micro-batch"),
                ArenaOptions(
                    slots=slots,
                    starts=starts,
                    duration=Duration(windows=windows, every_s=every_s),
                    seed=seed,
                    trace=course,
                ),
                watched,
            )
            found.append(result)
            if not as_json:
                Console().print(table(str(result), result.league))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())


def _options(name: str, slots: int, every_s: float) -> PolicyOptions:
    """Return the same options for every policy, except its name."""
    return PolicyOptions(
        policy=name,
        mode="active",
        max_slots=slots,
        cooldown_s=2 * every_s,
        windows=4,
        warm_up_s=every_s,
        workers=_WORKERS,
    )
