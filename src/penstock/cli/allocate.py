"""`penstock allocate`: allocate threads, slots and VMs for a rate, from performance curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from penstock.cli.parameters import ABOVE_0

if TYPE_CHECKING:
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
@click.option("--plan", type=click.Path(path_type=Path), help="File to write the plan to, for run --plan.")
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
    as_json: bool,
) -> None:
    """Allocate threads, slots and VMs for a dataflow at a rate, and predict the rate that they sustain.

    For a dataflow of operators, --plan writes a plan with replicas, threads and cuts.

    \b
    Example:
      penstock allocate shop.py --rate 500 --curves studies/shop-curves --plan plan.json
      penstock allocate linear.json --rate 100 --curves curves.json --vms sizes.json
    The formats: penstock schema dataflow, penstock schema curves, penstock schema sizes
    """
    from penstock.api.planning import allocate

    result = allocate(dataflow, rate=rate, curves=curves, method=method, mapping=mapping, vms=vms, like=like, plan=plan)
    if as_json:
        click.echo(result.to_json())
    else:
        _print(result)


def _print(result: ScheduleReport) -> None:
    from collections import Counter

    from rich.console import Console
    from rich.table import Table

    console = Console()
    operators = Table(title=f"{result.method} + {result.map} at {result.rate_rows_per_s:g} rows/s")
    for column in ("operator", "rows/s in", "threads", "CPU %", "memory %", "threads on slots"):
        operators.add_column(column, justify="left" if column in ("operator", "threads on slots") else "right")
    for name, operator in result.operators.items():
        threads = Counter(result.placement[name])
        slots = ", ".join(f"{slot} x{count}" for slot, count in list(threads.items())[:6])
        operators.add_row(
            name,
            f"{operator.input_rows_per_s:g}",
            str(operator.threads),
            f"{operator.cpu:.2f}",
            f"{operator.memory:.2f}",
            slots + (f", and {len(threads) - 6} more slots" if len(threads) > 6 else ""),
        )
    console.print(operators)
    vms = Table(title="VMs")
    for column in ("VM", "slots", "rack", "price/h", "CPU %", "memory %"):
        vms.add_column(column, justify="left" if column == "VM" else "right")
    for vm in result.vms[:40]:
        price = "unknown" if vm.price_per_h is None else f"{vm.price_per_h:g}"
        vms.add_row(vm.name, str(vm.slots), str(vm.rack), price, f"{vm.cpu:.1f}", f"{vm.memory:.1f}")
    if len(result.vms) > 40:
        vms.add_row(f"and {len(result.vms) - 40} more", "", "", "", "", "")
    console.print(vms)
    console.print(
        f"slots: {result.slots} allocated, {result.extra_slots} added for the mapping, {result.vm_slots} in the VMs; "
        f"lower bound {result.lower_bound}, lower bound for sustaining the rate {result.sustaining_lower_bound}"
    )
    if result.price_per_h is not None and result.cheapest_price_per_h is not None:
        console.print(
            f"price: {result.price_per_h:.4g} per hour (cheapest mix of sizes: {result.cheapest_price_per_h:.4g})"
        )
    for routing, predicted in result.predicted.items():
        console.print(
            f"{routing} routing sustains {predicted.rows_per_s:.4g} rows/s, limited by {predicted.binding} "
            f"({predicted.within_slots_rows_per_s:.4g} with no slot above 100% CPU or memory)"
        )
        for name in predicted.beyond_measured:
            console.print(f"  extrapolated: more threads of {name} share a slot than its curve was measured with")
    if result.plan is not None:
        replicas = ", ".join(f"{name} x{count}" for name, count in result.plan.replicas.items())
        calls = "".join(f", {name} with {count} threads" for name, count in result.plan.threads.items())
        console.print(f"plan: {replicas}{calls}; sustains {result.plan_rows_per_s:.4g} rows/s with even routing")
        for note in result.plan_notes:
            console.print(f"  {note}")
