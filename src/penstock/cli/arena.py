"""`penstock arena`: compare all policies on the same simulated applications."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.api.policy_comparison import APPLICATIONS, ENGINES
from penstock.cli.parameters import Finite

if TYPE_CHECKING:
    from penstock.control.arena.comparison import ArenaResult


@click.command()
@click.option(
    "--app", "apps", type=click.Choice(APPLICATIONS), multiple=True, help="Application; repeatable.  [default: all]"
)
@click.option(
    "--engine", "engines", type=click.Choice(ENGINES), multiple=True, help="Engine; repeatable.  [default: both]"
)
@click.option("--slots", type=click.IntRange(min=3), default=22, show_default=True, help="Slots that a plan may use.")
@click.option("--starts", type=click.IntRange(min=1), default=5, show_default=True, help="Number of initial plans.")
@click.option("--windows", type=click.IntRange(min=1), default=150, show_default=True, help="Windows per policy.")
@click.option("--window-s", type=Finite(min=1), default=30.0, show_default=True, help="Length of a window in seconds.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="CSV: time_s,rate; scaled so that the last rate is the application's own.  [default: constant rate]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Random seed.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    apps: tuple[str, ...],
    engines: tuple[str, ...],
    slots: int,
    starts: int,
    windows: int,
    window_s: float,
    trace: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare policies with the best plan: how close they come, after how many changes, and at what cost.

    The first plans are one replica per operator, and random plans. The best plan is found by simulating all plans.

    \b
    Example:
      penstock arena
      penstock arena --engine micro-batch --app video --starts 20 --json
      penstock arena --trace day.csv --window-s 60
    """
    from functools import partial

    import msgspec
    from rich.console import Console
    from rich.progress import track

    from penstock.api.policy_comparison import compare_policies
    from penstock.report.simulation_tables import league_table

    def show(result: ArenaResult) -> None:
        if not as_json:
            Console().print(league_table(str(result), result.league))

    results = compare_policies(
        applications=apps or APPLICATIONS,
        engines=engines or ENGINES,
        slots=slots,
        starts=starts,
        windows=windows,
        window_s=window_s,
        trace=trace,
        seed=seed,
        progress=partial(track, console=Console(stderr=True)),
        on_result=show,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results)).decode())
