"""penstock cut: run operators of a run in separate queries."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, TIMEOUT, json_option


@click.command()
@RUN_DIRECTORY
@click.argument("operators", metavar="OPERATOR...", nargs=-1, required=True)
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(run_dir: Path, operators: tuple[str, ...], timeout_s: float, as_json: bool) -> None:
    """Cut after operators of a running dataflow: the operators behind them run in queries of their own.

    \b
    Example:
      penstock cut runs/wc split
    """
    import msgspec

    import penstock

    answer = penstock.open_run(run_dir).cut(*operators, timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
