"""penstock report: a run or a study as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, Finite, json_option


@click.command()
@RUN_DIRECTORY
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Path of the report; - prints it.  [default: DIR/report.html]",
)
@click.option("--price", type=Finite(min=0), help="Price of one slot for one hour, in any currency; adds the cost.")
@click.option(
    "--mst", "study", type=click.Path(path_type=Path), help="Directory of a study; adds its throughput curve."
)
@json_option("Write JSON instead of HTML; without -o, print it.")
def command(run_dir: Path, output: Path | None, price: float | None, study: Path | None, as_json: bool) -> None:
    """Write one self-contained HTML file: graph, load and latency over time, cost, decisions, plan changes, errors.

    The report is read from the record of the run or study, also while it runs. The file needs no network. The report of
    a profile has box plots of its rounds, the features of the operators, and the throughput by platform if several were
    profiled.

    \b
    Example:
      penstock report runs/wc
      penstock report runs/wc -o wc.html --price 0.05
      penstock report studies/wc
      penstock report runs/wc --mst studies/wc --json | jq .totals
    """
    import penstock

    is_printed = str(output) == "-" or (output is None and as_json)
    record = penstock.open_run(run_dir, largest_platform=True)
    if is_printed:
        click.echo(record.report_text(price_per_slot_hour=price, study=study, as_json=as_json))
        return
    path = record.report(
        run_dir / "report.html" if output is None else output, price_per_slot_hour=price, study=study, as_json=as_json
    )
    click.echo(f"{path} ({path.stat().st_size / 1e3:,.0f} kB)")
