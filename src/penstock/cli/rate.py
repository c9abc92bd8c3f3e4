"""penstock rate: another rate for a paced source of a running run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import asking


@click.command()
@asking.run_directory
@click.argument("rate", metavar="SOURCE=ROWS_PER_S")
@asking.timeout
@asking.as_json
def command(run_dir: Path, rate: str, timeout_s: float, as_json: bool) -> None:
    """Change the rate of a replayed or generated source while it runs.

    \b
    Example:
      penstock rate runs/wc lines=5000
    """
    from penstock.cli.given import pairs
    from penstock.control.requests import Rate

    ((source, rows_per_s),) = pairs([rate], "SOURCE=ROWS_PER_S", "lines=5000").items()
    asking.ask_and_print(run_dir, Rate(source=source, rows_per_s=rows_per_s), timeout_s=timeout_s, as_json=as_json)
