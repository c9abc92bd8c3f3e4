"""penstock rate: change the rate of a source of a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, TIMEOUT, json_option, numbers_by_name


@click.command()
@RUN_DIRECTORY
@click.argument("rate", metavar="SOURCE=ROWS_PER_S")
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(run_dir: Path, rate: str, timeout_s: float, as_json: bool) -> None:
    """Change the rate of a replayed or generated source of a running dataflow.

    \b
    Example:
      penstock rate runs/wc lines=5000
    """
    import msgspec

    import penstock

    ((source, rows_per_s),) = numbers_by_name([rate], "SOURCE=ROWS_PER_S", "lines=5000").items()
    answer = penstock.open_run(run_dir).set_rate(source, rows_per_s, timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
