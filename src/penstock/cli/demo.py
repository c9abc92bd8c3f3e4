"""penstock demo: two minutes that show what Penstock does."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import Finite


@click.command()
@click.option("--seconds", type=Finite(min=10), default=90.0, show_default=True, help="How long, about.")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/demo"),
    help="Where; it is emptied first.",
)
@click.option("--json", "as_json", is_flag=True, help="Only the outcome, as JSON.")
def command(seconds: float, master: str, at: Path, as_json: bool) -> None:
    """Word count on generated text at a changing rate, with two plan changes while it runs.

    At the end its output is compared with a batch computation of the same input.

    \b
    Example:
      penstock demo
      penstock demo --seconds 30 --master local[4]
    """
    import msgspec

    from penstock.report.live_table import LiveTable

    with LiveTable(quiet=as_json) as viewer:
        viewer.say(f"Starting Spark on {master}; word count runs in {at} ...")

        from penstock.apps.demonstration import demonstrate

        outcome = demonstrate(at, seconds=seconds, master=master, viewer=viewer)
    if as_json:
        click.echo(msgspec.json.encode(outcome).decode())
    elif outcome.exact:
        click.echo(
            f"The output is exact: {outcome.words:,} words in {outcome.lines:,} lines, counted across "
            f"{len(outcome.changes)} plan changes, equal to a batch count of the same input."
        )
    else:
        click.echo("The output is NOT exact: " + "; ".join(outcome.differences[:5]))
    if not outcome.exact:
        raise SystemExit(1)
