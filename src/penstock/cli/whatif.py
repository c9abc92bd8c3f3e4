"""penstock whatif: a recorded run under another plan, load or limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli.parameters import ABOVE_0, RUN_DIRECTORY, SHARE, Between, Factor, json_option


@click.command()
@RUN_DIRECTORY
@click.option("--plan", type=click.Path(path_type=Path), help="JSON file of a plan to use all the time.")
@click.option("--rate", type=Factor(), default=1.0, help="Factor of the recorded load, such as 2x.  [default: 1x]")
@click.option("--max-slots", type=click.IntRange(min=1), help="Let policy auto choose plans within this limit.")
@click.option("--executors", type=Between(), help="Let policy auto choose the number of executors, such as 1..6.")
@click.option("--latency-ms", type=ABOVE_0, help="Latency target.  [default: the target of the run]")
@click.option("--quantile", type=SHARE, help="Apply the target to this quantile: 0.5, 0.95 or 0.99.")
@click.option("--flow", metavar="FILE[:FLOW]", help="The dataflow.  [default: the dataflow of the run]")
@click.option("--price", type=ABOVE_0, help="Price of one slot for one hour, in any currency; adds the cost.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@json_option("Print the result as JSON.")
def command(run_dir: Path, latency_ms: float | None, price: float | None, as_json: bool, **options: Any) -> None:
    """Replay a recorded run in the simulator with another plan, load or limit, beside what was measured.

    Costs, batch times and pauses are those of the run. A plan given by --plan is used all the time. If
    --max-slots or --executors is given, policy auto chooses the plans. Otherwise the recorded plans are used.

    \b
    Example:
      penstock whatif runs/wc --rate 2x
      penstock whatif runs/wc --plan plan.json --price 0.05
      penstock whatif runs/wc --rate 2x --max-slots 32
      penstock whatif runs/wc --rate 2x --executors 1..6
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.whatif_table import whatif_table

    with Console(stderr=True).status("Simulating ..."):
        result = penstock.whatif(run_dir, latency_s=None if latency_ms is None else latency_ms / 1000, **options)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        Console(highlight=False).print(whatif_table(result, price_per_slot_hour=price))
