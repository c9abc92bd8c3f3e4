"""penstock apply: change the plan of a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, TIMEOUT, json_option


@click.command()
@RUN_DIRECTORY
@click.argument("plan", metavar="PLAN.json", type=click.Path(path_type=Path))
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(run_dir: Path, plan: Path, timeout_s: float, as_json: bool) -> None:
    """Change the plan of a running dataflow, completely or not at all.

    \b
    Example:
      penstock status runs/wc --json | jq .plan > plan.json
      penstock apply runs/wc plan.json
    """
    import msgspec

    import penstock

    answer = penstock.open_run(run_dir).apply(plan, timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
