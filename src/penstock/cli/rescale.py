"""penstock rescale: other replicas for a running run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import asking


@click.command()
@asking.run_directory
@click.argument("replicas", metavar="OPERATOR=REPLICAS...", nargs=-1, required=True)
@asking.timeout
@asking.as_json
def command(run_dir: Path, replicas: tuple[str, ...], timeout_s: float, as_json: bool) -> None:
    """Change replicas of a running run; cuts that they make necessary are added.

    \b
    Example:
      penstock rescale runs/wc count=4 split=2
    """
    from penstock.cli.given import pairs, whole
    from penstock.control.requests import Rescale

    counts = whole(pairs(replicas, "OPERATOR=REPLICAS", "count=4"))
    asking.ask_and_print(run_dir, Rescale(replicas=counts), timeout_s=timeout_s, as_json=as_json)
