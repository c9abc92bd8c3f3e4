"""`penstock elastic`: how many VMs to rent as a load moves."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.input_files import read_text
from penstock.cli.parameters import ABOVE_0, SHARE, Counts, Finite, HtmlFile


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--samples", type=click.Path(path_type=Path), required=True, help="CSV: app,vms,throughput.")
@click.option("--app", required=True, help="The application, as named in the samples.")
@click.option("--train", type=Counts(), help="VM counts the models are fitted to; all but those of --validate.")
@click.option("--validate", type=Counts(), help="VM counts that choose among the models; the largest measured.")
@click.option("--step", type=Finite(min=0), default=0.0, help="VMs that one more thread a unit takes; 0: none.")
@click.option("--price", type=ABOVE_0, default=0.10, show_default=True, help="Of a VM, an hour.")
@click.option(
    "--delay-s", type=Finite(min=0), default=60.0, show_default=True, help="From an order of VMs to their use."
)
@click.option("--max-vms", type=int, help="The most VMs; the largest count measured, if not given.")
@click.option("--peak", type=ABOVE_0, help="Scale the trace to this peak rate.")
@click.option("--choose-share", type=SHARE, default=0.5, show_default=True, help="Part of the trace to choose on.")
@click.option("--plot", type=HtmlFile(), help="Write load, capacity and VMs to this HTML file.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def command(
    trace: Path,
    samples: Path,
    app: str,
    train: tuple[int, ...] | None,
    validate: tuple[int, ...] | None,
    step: float,
    price: float,
    delay_s: float,
    max_vms: int | None,
    peak: float | None,
    choose_share: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare policies on TRACE (CSV: time_s,rate or time,rate): their cost, and how often capacity falls short.

    Parameters are chosen on the first part of the trace, outcomes are of the rest.

    \b
    Example:
      penstock elastic trace.csv --samples samples.csv --app grep --plot schedule.html
    """
    from penstock.models.mst.samples import parse_samples, samples_of_app
    from penstock.planning.elastic_comparison import ModelInputs, compare
    from penstock.planning.elastic_schedule import RentalTerms
    from penstock.planning.trace import parse_trace
    from penstock.report.mst_results import default_validation, elastic_result

    load = parse_trace(read_text(trace), source=str(trace))
    measured = samples_of_app(parse_samples(read_text(samples), source=str(samples)), app)
    held = default_validation(measured) if validate is None else validate
    comparison = compare(
        load if peak is None else load.scaled_to(peak),
        measured,
        terms=RentalTerms(
            price_per_h=price, delay_s=delay_s, max_vms=max(measured.vms) if max_vms is None else max_vms
        ),
        inputs=ModelInputs(
            train=measured.without(held).vms if train is None else train,
            validation=held,
            steps=(0.0,) if step == 0 else (0.0, step),
        ),
        choose_share=choose_share,
    )
    if plot:
        from penstock.report.page import elastic_page, write_page

        write_page(plot, elastic_page(load if peak is None else load.scaled_to(peak), comparison))
    report = elastic_result(comparison)
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("policy", "cost/h", "violations", "behind", "lag", "VMs", "peak")
    table.columns[0].no_wrap = True
    for p in report.policies:
        table.add_row(
            p.policy,
            f"{p.cost_per_h:.3f}",
            f"{p.violations:.3%}",
            f"{p.behind:.3%}",
            f"{p.worst_lag_s:.0f} s",
            f"{p.mean_vms:.1f}",
            str(p.peak_vms),
        )
    console = Console()
    console.print(table)
    ours, as_good = report.policies[-1], report.as_good
    said = f"costs {as_good.cost_per_h:.3f}/h ({as_good.policy})" if as_good else "takes more than twice the VMs"
    console.print(
        f"with as few violations as {ours.policy}, which costs {ours.cost_per_h:.3f}/h, the paper's policy {said}",
        highlight=False,
    )
    judged = report.intervals - report.judged_from
    console.print(
        f"chosen on {report.judged_from} intervals, judged on the other {judged}; "
        f"elastic +x% by {report.paper_model}, careful by {report.model}",
        highlight=False,
    )
