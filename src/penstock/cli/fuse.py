"""penstock fuse: remove cuts of a run."""

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
    """Remove the cut after operators of a running dataflow, so that they share a query with those behind them.

    \b
    Example:
      penstock fuse runs/wc split
    """
    import msgspec

    import penstock

    answer = penstock.open_run(run_dir).fuse(*operators, timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
