"""penstock stop: stop a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, TIMEOUT, json_option


@click.command()
@RUN_DIRECTORY
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(run_dir: Path, timeout_s: float, as_json: bool) -> None:
    """Stop a run cleanly and wait until its process has ended. 'penstock run' resumes it.

    \b
    Example:
      penstock stop runs/wc
    """
    import msgspec

    import penstock

    answer = penstock.open_run(run_dir).stop(timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
