"""`penstock allocate`: allocate threads, slots and VMs for a rate, from performance curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from penstock.cli.parameters import ABOVE_0, ROUTING

if TYPE_CHECKING:
    from penstock.plan import Routing
    from penstock.report.thread_schedule import ScheduleReport


@click.command()
@click.argument("dataflow", metavar="FILE[:FLOW]|DATAFLOW.json")
@click.option("--rate", type=ABOVE_0, required=True, help="Input rate in rows/s.")
@click.option(
    "--curves",
    type=click.Path(path_type=Path),
    required=True,
    help="Performance curves: a JSON file, or a study of 'penstock curves'.",
)
@click.option(
    "--method", type=click.Choice(["mba", "lsa"]), default="mba", show_default=True, help="Allocation of threads."
)
@click.option(
    "--map",
    "mapping",
    type=click.Choice(["dsm", "rsm", "sam"]),
    default="sam",
    show_default=True,
    help="Mapping of threads to slots.",
)
@click.option("--vms", type=click.Path(path_type=Path), help="VM sizes and prices (JSON).  [default: one slot per VM]")
@click.option("--like", type=click.Path(path_type=Path), help="Directory of a run whose selectivities are used.")
@click.option("--plan", type=click.Path(path_type=Path), help="File for the plan, which 'penstock run --plan' reads.")
@ROUTING
@click.option(
    "--groups/--no-groups",
    default=None,
    help="Give operators executors of their own; requires a cluster.  [default: with --vms]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, including the slot of each thread and the routes.")
def command(
    dataflow: str,
    rate: float,
    curves: Path,
    method: Literal["mba", "lsa"],
    mapping: Literal["dsm", "rsm", "sam"],
    vms: Path | None,
    like: Path | None,
    plan: Path | None,
    routing: Routing,
    groups: bool | None,
    as_json: bool,
) -> None:
    """Allocate threads, slots and VMs for a dataflow at a rate, and predict the rate that they sustain.

    For a dataflow of operators, --plan writes a plan with replicas, threads, cuts and groups of executors. A plan that
    does not sustain the rate is not written.

    \b
    Example:
      penstock allocate shop.py --rate 500 --curves studies/shop-curves --plan plan.json
      penstock allocate linear.json --rate 100 --curves curves.json --vms sizes.json
    The formats: penstock schema dataflow, penstock schema curves, penstock schema sizes
    """
    from penstock.api.planning import allocate

    result = allocate(
        dataflow,
        rate=rate,
        curves=curves,
        method=method,
        mapping=mapping,
        vms=vms,
        like=like,
        plan=plan,
        routing=routing or "capacity",
        groups=groups,
    )
    if as_json:
        click.echo(result.to_json())
    else:
        _print(result)


def _print(result: ScheduleReport) -> None:
    from rich.console import Console

    from penstock.report.thread_schedule_tables import operator_table, schedule_lines, vm_table

    console = Console()
    console.print(operator_table(result))
    console.print(vm_table(result))
    for line in schedule_lines(result):
        console.print(line)
