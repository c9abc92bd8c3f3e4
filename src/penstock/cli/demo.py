"""penstock demo: two minutes that compare a fixed plan with a scaling policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import Finite, json_option

if TYPE_CHECKING:
    from rich.table import Table

    from penstock.api.demonstration import DemoResult


@click.command()
@click.option(
    "--seconds",
    type=Finite(min=20),
    default=100.0,
    show_default=True,
    help="Duration of the load in both runs.",
)
@click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/demo"),
    show_default=True,
    help="Directory of the demo; its content is deleted first.",
)
@json_option("Print only the result as JSON.")
def command(seconds: float, at: Path, as_json: bool) -> None:
    """Run a load that rises fourfold and falls again, first under a fixed plan, then under a policy.

    The operator waits for an external service. The result compares latency, time within the target and slot-seconds,
    and compares the output with a batch computation. It takes about two minutes.

    \b
    Example:
      penstock demo
      penstock demo --seconds 60 --at runs/demo --json
    """
    import msgspec
    from rich.console import Console

    from penstock.api.demonstration import demonstrate
    from penstock.report.live_table import LiveTable

    with LiveTable(quiet=as_json) as table:
        result = demonstrate(at, seconds=seconds, say=table.say, show=table.show)
    if as_json:
        click.echo(msgspec.json.encode(result).decode())
    else:
        Console(highlight=False).print(_summary(result))
        if result.is_exact:
            click.echo(f"The output is exact: its {result.rows:,} rows equal a batch computation of the same input.")
        click.echo(f"Report: {result.report}")
    if not result.is_exact:
        raise click.ClickException("The output is not exact: " + " ".join(result.differences))


def _summary(result: DemoResult) -> Table:
    from rich import box
    from rich.table import Table

    from penstock.report.formatting import count, percent, seconds

    table = Table(title="\nSummary", title_justify="left", box=box.HORIZONTALS, pad_edge=False)
    for heading in ("", "fixed plan", "with Penstock"):
        table.add_column(heading, justify="left" if not heading else "right")
    columns = (result.without, result.with_policy)
    table.add_row("p95 latency", *(seconds(column.latency_p95_s) for column in columns))
    table.add_row(f"time within {result.target_s:.1f} s", *(percent(column.share_within_target) for column in columns))
    table.add_row("slot-seconds used", *(count(column.slot_seconds) for column in columns))
    table.add_row("slots: most, last", *(f"{column.most_slots}, {column.last_slots}" for column in columns))
    table.add_row("largest backlog (rows)", *(count(column.most_backlog_rows) for column in columns))
    table.add_row("rows waiting at the end", *(count(column.last_backlog_rows) for column in columns))
    peak = result.with_policy.most_slots * result.with_policy.seconds
    table.caption = (
        f"A fixed plan with the {result.with_policy.most_slots} slots of the peak takes {count(peak)} slot-seconds."
    )
    table.caption_justify = "left"
    return table
