"""`penstock allocate`: threads, slots and VMs for a rate, from performance curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.api.input_files import read_file
from penstock.cli.parameters import ABOVE_0

if TYPE_CHECKING:
    from penstock.report.thread_schedule import ScheduleReport


@click.command()
@click.argument("dataflow", type=click.Path(path_type=Path))
@click.option("--rate", type=ABOVE_0, required=True, help="Rows a second from outside.")
@click.option("--curves", type=click.Path(path_type=Path), required=True, help="Performance curves of the operators.")
@click.option("--method", type=click.Choice(["mba", "lsa"]), default="mba", show_default=True, help="Allocation.")
@click.option(
    "--map", "mapping", type=click.Choice(["dsm", "rsm", "sam"]), default="sam", show_default=True, help="Mapping."
)
@click.option("--vms", type=click.Path(path_type=Path), help="VM sizes and prices; without, every slot is a VM.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the slot of every thread and the routes.")
def command(
    dataflow: Path, rate: float, curves: Path, method: str, mapping: str, vms: Path | None, as_json: bool
) -> None:
    """Threads, slots and VMs that DATAFLOW.json needs at a rate, where each thread runs, and what that sustains.

    \b
    Example:
      penstock allocate linear.json --rate 100 --curves curves.json --vms sizes.json
    The formats: penstock schema dataflow, penstock schema curves, penstock schema sizes.
    """
    from penstock.models.curve import curves_from_json
    from penstock.models.flow import flow_from_json
    from penstock.planning.thread_schedule import schedule_threads
    from penstock.planning.vms import ONE_SLOT, sizes_from_json
    from penstock.report.thread_schedule import schedule_report

    flow = flow_from_json(read_file(dataflow, "dataflow"))
    known = curves_from_json(read_file(curves, "curves"))
    sizes = sizes_from_json(read_file(vms, "VM sizes")) if vms else (ONE_SLOT,)
    schedule = schedule_threads(flow, rate, known, method=method, mapping=mapping, sizes=sizes)
    found = schedule_report(schedule, known, sizes)
    if as_json:
        click.echo(found.to_json())
    else:
        _print(found)


def _print(found: ScheduleReport) -> None:
    from collections import Counter

    from rich.console import Console
    from rich.table import Table

    console = Console()
    operators = Table(title=f"{found.method} + {found.map} at {found.rate_rows_per_s:g} rows/s")
    for column in ("operator", "rows/s in", "threads", "CPU %", "memory %", "threads on slots"):
        operators.add_column(column, justify="left" if column in ("operator", "threads on slots") else "right")
    for name, one in found.operators.items():
        where = Counter(found.placement[name])
        shown = ", ".join(f"{slot} x{count}" for slot, count in list(where.items())[:6])
        operators.add_row(
            name,
            f"{one.input_rows_per_s:g}",
            str(one.threads),
            f"{one.cpu:.2f}",
            f"{one.memory:.2f}",
            shown + (f", and {len(where) - 6} more slots" if len(where) > 6 else ""),
        )
    console.print(operators)
    vms = Table(title="VMs")
    for column in ("VM", "slots", "rack", "price/h", "CPU %", "memory %"):
        vms.add_column(column, justify="left" if column == "VM" else "right")
    for vm in found.vms[:40]:
        price = "unknown" if vm.price_per_h is None else f"{vm.price_per_h:g}"
        vms.add_row(vm.name, str(vm.slots), str(vm.rack), price, f"{vm.cpu:.1f}", f"{vm.memory:.1f}")
    if len(found.vms) > 40:
        vms.add_row(f"and {len(found.vms) - 40} more", "", "", "", "", "")
    console.print(vms)
    console.print(
        f"slots: {found.slots} allocated, {found.extra_slots} more to fit the mapping, {found.vm_slots} in the VMs; no "
        f"method takes fewer than {found.lower_bound}, no plan that sustains the rate fewer than "
        f"{found.sustaining_lower_bound}"
    )
    if found.price_per_h is not None and found.cheapest_price_per_h is not None:
        console.print(
            f"price: {found.price_per_h:.4g} an hour (cheapest mix of sizes: {found.cheapest_price_per_h:.4g})"
        )
    for routing, predicted in found.predicted.items():
        console.print(
            f"{routing} routing sustains {predicted.rows_per_s:.4g} rows/s, bound by {predicted.binding} "
            f"({predicted.within_slots_rows_per_s:.4g} with no slot above 100% CPU or memory)"
        )
        for name in predicted.beyond_measured:
            console.print(f"  more threads of {name} share a slot than its curve was measured with")
