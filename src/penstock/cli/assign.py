"""`penstock assign`: assign processors to the operators of a stations file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import ABOVE_0, SHARE

if TYPE_CHECKING:
    from penstock.planning.stations import AssignmentResult


@click.command("assign")
@click.argument("stations", type=click.Path(path_type=Path))
@click.option("--processors", type=click.IntRange(min=1), help="Number of processors; minimises the latency.")
@click.option("--latency-ms", type=ABOVE_0, help="Latency target in milliseconds; minimises the processors.")
@click.option("--quantile", type=SHARE, help="Apply the target to this quantile, such as 0.95.  [default: the mean]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    stations: Path, processors: int | None, latency_ms: float | None, quantile: float | None, as_json: bool
) -> None:
    """Assign processors to the operators in STATIONS (JSON), and predict latency and maximum rate.

    \b
    Example:
      penstock assign stations.json --processors 22
      penstock assign stations.json --latency-ms 500 --quantile 0.95 --json
    The format: penstock schema stations
    """
    import msgspec

    from penstock.api.planning import assign

    if (processors is None) == (latency_ms is None):
        raise click.UsageError("Give either --processors or --latency-ms.")
    if quantile is not None and latency_ms is None:
        raise click.UsageError("--quantile requires --latency-ms.")
    latency_s = None if latency_ms is None else latency_ms / 1000.0
    result = assign(stations, processors=processors, latency_s=latency_s, quantile=quantile)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        _print(result)


def _print(result: AssignmentResult) -> None:
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
        needed = [str(needs.processors[name])] if needs and needs.processors else []
        table.add_row(name + mark, str(count), *needed)
    needed = [str(needs.total)] if needs and needs.processors else []
    table.add_row("total", str(result.total), *needed, style="bold")
    console = Console(highlight=False)
    console.print(table)
    if result.latency_s is not None:
        quantiles = ", ".join(f"p{100 * float(p):g} {s * 1000:,.1f}" for p, s in result.quantiles_s.items())
        console.print(f"latency: mean {result.latency_s * 1000:,.1f} ms; {quantiles} ms", soft_wrap=True)
    if result.max_external_per_s is not None:
        console.print(f"maximum input rate: {result.max_external_per_s:,.6g} rows/s", soft_wrap=True)
    if needs:
        console.print(f"not feasible: {needs.reason}", soft_wrap=True, style="red")
