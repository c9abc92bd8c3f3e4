"""penstock status: the current state of a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, json_option


@click.command()
@RUN_DIRECTORY
@click.option("--follow", is_flag=True, help="Print each new window until the run ends.")
@json_option("Print JSON; with --follow, one window per line.")
def command(run_dir: Path, follow: bool, as_json: bool) -> None:
    """Print the state of a run: plan, latest window, latest plan changes and errors.

    \b
    Example:
      penstock status runs/wc --follow
      penstock status runs/wc --json | jq .plan
    """
    import contextlib

    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.live_table import LiveTable
    from penstock.report.status import status_text

    console = Console(highlight=False)
    record = penstock.open_run(run_dir)
    if follow:
        with contextlib.suppress(KeyboardInterrupt), LiveTable(as_json=as_json, console=console) as table:
            for window, plan in record.follow():
                table.show(window, plan)
        if not as_json:
            console.print(status_text(record.status(), with_window=False), soft_wrap=not console.is_terminal)
    elif as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(record.status())))
    else:
        console.print(status_text(record.status()), soft_wrap=not console.is_terminal)
