"""A schedule of threads as tables and lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from penstock.plan import threads_text
from penstock.plan.counts import slots_text
from penstock.report.formatting import seconds
from penstock.report.thread_schedule import ScheduleReport

_SLOTS_PER_OPERATOR, _VMS = 6, 40  # largest numbers of table rows


def operator_table(report: ScheduleReport) -> Table:
    """Return the threads, CPU and memory of each operator."""
    table = Table(title=f"{report.method} + {report.map} at {report.rate_rows_per_s:g} rows/s")
    for column in ("operator", "rows/s in", "threads", "CPU %", "memory %", "threads on slots"):
        table.add_column(column, justify="left" if column in ("operator", "threads on slots") else "right")
    for name, operator in report.operators.items():
        threads = Counter(report.placement[name])
        more = len(threads) - _SLOTS_PER_OPERATOR
        slots = ", ".join(f"{slot} x{count}" for slot, count in list(threads.items())[:_SLOTS_PER_OPERATOR])
        table.add_row(
            name,
            f"{operator.input_rows_per_s:g}",
            str(operator.threads),
            f"{operator.cpu:.2f}",
            f"{operator.memory:.2f}",
            f"{slots}, and {more} more slots" if more > 0 else slots,
        )
    return table


def vm_table(report: ScheduleReport) -> Table:
    """Return the VMs with their price and predicted use."""
    table = Table(title="VMs")
    for column in ("VM", "slots", "rack", "price/h", "CPU %", "memory %"):
        table.add_column(column, justify="left" if column == "VM" else "right")
    for vm in report.vms[:_VMS]:
        price = "unknown" if vm.price_per_h is None else f"{vm.price_per_h:g}"
        table.add_row(vm.name, str(vm.slots), str(vm.rack), price, f"{vm.cpu:.1f}", f"{vm.memory:.1f}")
    if len(report.vms) > _VMS:
        table.add_row(f"and {len(report.vms) - _VMS} more", "", "", "", "", "")
    return table


def schedule_lines(report: ScheduleReport) -> Iterator[str]:
    """Return the slots, the price, the predicted rates and the plan."""
    yield (
        f"slots: {report.slots} allocated, {report.extra_slots} added for the mapping, {report.vm_slots} in the VMs; "
        f"lower bound {report.lower_bound}, lower bound for sustaining the rate {report.sustaining_lower_bound}"
    )
    if report.price_per_h is not None and report.cheapest_price_per_h is not None:
        yield f"price: {report.price_per_h:.4g} per hour (cheapest mix of sizes: {report.cheapest_price_per_h:.4g})"
    for routing, predicted in report.predicted.items():
        yield (
            f"{routing} routing sustains {predicted.rows_per_s:.4g} rows/s, limited by {predicted.binding} "
            f"({predicted.within_slots_rows_per_s:.4g} with no slot above 100% CPU or memory)"
        )
        for name in predicted.beyond_measured:
            yield f"  extrapolated: more threads of {name} share a slot than its curve was measured with"
    if report.plan is not None:
        replicas = ", ".join(f"{name} x{count}" for name, count in report.plan.replicas.items())
        calls = "".join(f", {name} with {threads_text(own)} threads" for name, own in report.plan.threads.items())
        limit = "" if report.plan_binding is None else f", limited by {report.plan_binding}"
        slots = slots_text(report.plan.slots)
        yield (
            f"plan: {replicas}{calls}, {slots}; sustains {report.plan_rows_per_s:.4g} rows/s with "
            f"{report.plan.routing} routing{limit}"
        )
        if report.plan_latency_s is not None:
            yield f"  mean latency: {seconds(report.plan_latency_s)}"
        if report.plan_price_per_h is not None:
            yield f"  price of {slots}: {report.plan_price_per_h:.4g} per hour"
        for name, use in report.plan_use.items():
            group = f"group {name}" if name else "slots without a group"
            yield f"  {group}: {use.cpu:.1f}% CPU and {use.memory:.1f}% memory of each slot"
        for note in report.plan_notes:
            yield f"  {note}"
