"""`penstock assign`: processors for the operators of a STATIONS.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.api.input_files import read_file
from penstock.cli.parameters import ABOVE_0, SHARE

if TYPE_CHECKING:
    from penstock.planning.stations import AssignmentResult


@click.command("assign")
@click.argument("stations", type=click.Path(path_type=Path))
@click.option("--processors", type=click.IntRange(min=1), help="The budget: least latency within it.")
@click.option("--latency-ms", type=ABOVE_0, help="The target: fewest processors that meet it.")
@click.option("--quantile", type=SHARE, help="The target is on this quantile of the latency (0.95), not on its mean.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    stations: Path, processors: int | None, latency_ms: float | None, quantile: float | None, as_json: bool
) -> None:
    """How many processors each operator of STATIONS.json gets, and the latency and rate that follow.

    \b
    Example:
      penstock assign stations.json --processors 22
      penstock assign stations.json --latency-ms 500 --quantile 0.95 --json
    """
    import msgspec

    from penstock.planning.stations import StationsDocument, plan_stations

    if (processors is None) == (latency_ms is None):
        raise click.UsageError("give either --processors or --latency-ms")
    if quantile is not None and latency_ms is None:
        raise click.UsageError("--quantile goes with --latency-ms")
    result = plan_stations(
        StationsDocument.from_json(read_file(stations, "stations")),
        processors=processors,
        latency_s=None if latency_ms is None else latency_ms / 1000.0,
        quantile=quantile,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        _show(result)


def _show(result: AssignmentResult) -> None:
    import msgspec
    from rich.console import Console
    from rich.table import Table

    needs = None if result.needs is msgspec.UNSET else result.needs
    table = Table()
    table.add_column("operator")
    table.add_column("processors", justify="right")
    if needs and needs.processors:
        table.add_column("needed", justify="right")
    for name, count in result.processors.items():
        mark = " (binds)" if name == result.binding else " (bottleneck)" if name == result.bottleneck else ""
        more = [str(needs.processors[name])] if needs and needs.processors else []
        table.add_row(name + mark, str(count), *more)
    more = [str(needs.total)] if needs and needs.processors else []
    table.add_row("total", str(result.total), *more, style="bold")
    console = Console()
    console.print(table)
    if result.latency_s is not None:
        tail = ", ".join(f"p{100 * float(p):g} {s * 1000:,.1f}" for p, s in result.quantiles_s.items())
        console.print(f"latency: mean {result.latency_s * 1000:,.1f} ms; {tail} ms", highlight=False, soft_wrap=True)
    if result.max_external_per_s is not None:
        console.print(
            f"sustains up to {result.max_external_per_s:,.6g} rows/s from outside", highlight=False, soft_wrap=True
        )
    if needs:
        console.print(f"not feasible: {needs.reason}", highlight=False, soft_wrap=True, style="red")
