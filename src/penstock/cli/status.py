"""penstock status: what a run is doing, from its store."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("run_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--follow", is_flag=True, help="Keep showing it until it ends.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; with --follow one window a line.")
def command(run_dir: Path, follow: bool, as_json: bool) -> None:
    """What a run is doing, or did last: windows, plan, changes, errors.

    \b
    Example:
      penstock status runs/wc --follow
      penstock status runs/wc --json | jq .plan
    """
    import contextlib

    import msgspec
    from rich.console import Console

    from penstock.report.live_table import LiveTable
    from penstock.report.status import follow_windows, run_status, status_text
    from penstock.store import StoreReader

    console = Console(highlight=False)
    with StoreReader(run_dir) as reader:
        if follow:
            with contextlib.suppress(KeyboardInterrupt), LiveTable(as_json=as_json, console=console) as viewer:
                for window in follow_windows(run_dir, reader):
                    viewer.show(window, reader.plan())
            if not as_json:
                console.print(
                    status_text(run_status(run_dir, reader), with_window=False), soft_wrap=not console.is_terminal
                )
        elif as_json:
            click.echo(msgspec.json.format(msgspec.json.encode(run_status(run_dir, reader))))
        else:
            console.print(status_text(run_status(run_dir, reader)), soft_wrap=not console.is_terminal)
