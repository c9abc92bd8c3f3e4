"""penstock report: a run or a study as one HTML file."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.given import Finite


@click.command()
@click.argument("run_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, allow_dash=True), help="Where to.  [DIR/report.html]")
@click.option("--price", type=Finite(min=0), help="Of a slot for an hour, in any currency: says what the run cost.")
@click.option(
    "--mst", "study", type=click.Path(path_type=Path), help="Adds the curve of what 'mst measure' left there."
)
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, to where -o says or to the terminal.")
def command(run_dir: Path, output: Path | None, price: float | None, study: Path | None, as_json: bool) -> None:
    """One self-contained HTML file: the graph, load and latency over time, throughput by executors, cost,
    decisions, plan changes, errors.

    It is read from the record of the run or study alone, also while it goes on; the file needs nothing else and no
    network.

    \b
    Example:
      penstock report runs/wc
      penstock report runs/wc -o wc.html --price 0.05
      penstock report studies/wc
      penstock report runs/wc --mst studies/wc --json | jq .totals
    """
    import contextlib
    import time

    import msgspec

    from penstock.report.mst_curve import curves_in
    from penstock.report.page import run_page, write_page
    from penstock.report.run_report import run_report
    from penstock.store import StoreReader

    with contextlib.ExitStack() as stack:
        curves = () if study is None else curves_in(stack.enter_context(StoreReader(study)))
        reader = stack.enter_context(StoreReader(run_dir))
        made = run_report(run_dir, reader, now_s=time.time(), price_per_slot_hour=price, mst=curves)
    text = msgspec.json.format(msgspec.json.encode(made)).decode() if as_json else run_page(made)
    if str(output) == "-" or (output is None and as_json):
        click.echo(text)
        return
    output = output or run_dir / "report.html"
    write_page(output, text)
    click.echo(f"{output} ({len(text.encode()) / 1e3:,.0f} kB)")
