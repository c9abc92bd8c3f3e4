"""penstock simulate: a policy on a simulated dataflow, under a load from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.api.simulation import ENGINES
from penstock.cli.parameters import ABOVE_0, ROUTING, Finite, json_option
from penstock.cli.policy_parameters import api_parameters, policy_parameters


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option(
    "--trace", type=click.Path(path_type=Path), required=True, help="CSV file of the load: time_s,rate or time,rate."
)
@click.option("--peak", type=ABOVE_0, help="Scale the trace to this highest rate in rows/s.")
@click.option("--behaviour", type=click.Path(path_type=Path), help="JSON file with the cost of the operators.")
@click.option("--like", type=click.Path(path_type=Path), help="Directory of a run with the operator costs to use.")
@click.option(
    "--engine", type=click.Choice(ENGINES), default=ENGINES[0], show_default=True, help="Kind of simulated engine."
)
@click.option("--plan", type=click.Path(path_type=Path), help="JSON file of the plan to start with.")
@ROUTING
@click.option(
    "--slots", type=click.IntRange(min=1), help="Number of slots.  [default: as in the run --like, otherwise 2]"
)
@click.option(
    "--window-s",
    type=Finite(min=0.1),
    default=10.0,
    show_default=True,
    help="Length of a measurement window in seconds.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Directory for the record.  [default: not kept]"
)
@policy_parameters(mode="active")
@json_option("Print JSON instead of a table.")
def command(flow: str, as_json: bool, **options: Any) -> None:
    """Simulate a dataflow under a policy and print its slot-hours, violations of the target and plan changes.

    Every source follows the trace. The cost of the operators comes from --behaviour or --like.

    \b
    Example:
      penstock simulate flow.py --trace day.csv --peak 500 --behaviour costs.json --latency-ms 800 --max-slots 16
      penstock simulate flow.py --trace day.csv --like runs/wc --engine micro-batch --policy threshold --json
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.simulation_tables import simulation_tables

    progress = Console(stderr=True)
    with progress.status("Simulating ..."):
        result = penstock.simulate(flow, **api_parameters(options))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result.totals)).decode())
    else:
        Console().print(simulation_tables(result.totals, result.changes))
