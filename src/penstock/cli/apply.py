"""penstock apply: another plan for a running run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import asking


@click.command()
@asking.run_directory
@click.argument("plan_file", metavar="PLAN.json", type=click.Path(path_type=Path))
@asking.timeout
@asking.as_json
def command(run_dir: Path, plan_file: Path, timeout_s: float, as_json: bool) -> None:
    """Give a running run another plan, wholly or not at all.

    \b
    Example:
      penstock status runs/wc --json | jq .plan > plan.json
      penstock apply runs/wc plan.json
    """
    from penstock.cli.given import read_plan
    from penstock.control.requests import Apply

    asking.ask_and_print(run_dir, Apply(plan=read_plan(plan_file)), timeout_s=timeout_s, as_json=as_json)
