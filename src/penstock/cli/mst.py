"""`penstock mst`: maximum sustainable throughput by VM count."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.input_files import read_text
from penstock.cli import mst_measure
from penstock.cli.parameters import SHARE, Counts, Finite, HtmlFile


@click.group()
def command() -> None:
    """Maximum sustainable throughput (MST) by VM or executor count: measured, or from samples.

    \b
    Example:
      penstock mst measure wordcount.py --executors 1,2,3 --predict 5,6
      penstock mst fit samples.csv --predict 48,64,128
      penstock mst subset samples.csv --max-vms 24
    """


command.add_command(mst_measure.measure)
command.add_command(mst_measure.predict)


@command.command()
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--predict", type=Counts(), default=(), help="VM counts to predict; those measured, if not given.")
@click.option("--app", help="Only this application.")
@click.option(
    "--validate",
    type=Counts(),
    help="VM counts that choose among the models; the largest one measured, if not given. '' lets each choose in turn.",
)
@click.option("--step", type=Finite(min=0), default=0.0, help="VMs that one more thread a unit takes; 0: none.")
@click.option("--level", type=SHARE, default=0.9, show_default=True, help="Share of new samples inside the interval.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of the redrawn samples behind the intervals.",
)
@click.option("--plot", type=HtmlFile(), help="Write curves, intervals and samples to this HTML file.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def fit(
    samples: Path,
    predict: tuple[int, ...],
    app: str | None,
    validate: tuple[int, ...] | None,
    step: float,
    level: float,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Fit and choose a model for each application of SAMPLES (CSV: app,vms,throughput), and predict.

    \b
    Example:
      penstock mst fit samples.csv --app grep --predict 48,64,128 --plot grep.html
    """
    from penstock.models.mst.samples import parse_samples, samples_of_app
    from penstock.report.mst_results import MstFits, fit_app

    found = parse_samples(read_text(samples), source=str(samples))
    chosen = [samples_of_app(found, app)] if app else list(found.values())
    fitted = [fit_app(item, predict=predict, validation=validate, step=step, level=level, seed=seed) for item in chosen]
    if plot:
        from penstock.report.mst_curve import sample_curve
        from penstock.report.page import mst_page, write_page

        curves = [sample_curve(item, model, level=level) for item, (model, _) in zip(chosen, fitted, strict=True)]
        write_page(plot, mst_page(curves))
    report = MstFits(apps=[item for _, item in fitted])
    if as_json:
        _print_json(report)
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("app", "model", "VMs", "MST", f"{level:.0%} interval", "measured")
    for item in report.apps:
        for row, p in enumerate(item.predictions):
            measured = (
                ("chosen by" if p.vms in item.validated else "trained on")
                if p.vms
                in (
                    *item.trained,
                    *item.validated,
                )
                else ""
            )
            name, model = (item.app, item.model) if row == 0 else ("", "")
            table.add_row(name, model, str(p.vms), f"{p.throughput:.4g}", f"{p.low:.4g} to {p.high:.4g}", measured)
        table.add_section()
    console = Console()
    console.print(table)
    for item in report.apps:
        errors = ", ".join(f"{name} {error:.1%}" for name, error in sorted(item.errors.items(), key=lambda e: e[1]))
        where = f"on {item.validated} VMs" if item.validated else "leaving out one count at a time"
        console.print(f"{item.app}: errors {where}: {errors}", highlight=False)
        if item.measure_next:
            console.print(
                f"{item.app}: the models part at {item.measure_next} VMs: measure there next", highlight=False
            )


@command.command()
@click.argument("samples", type=click.Path(path_type=Path))
@click.option("--max-vms", type=click.IntRange(min=1), required=True, help="The largest VM count to pay for.")
@click.option("--sizes", type=Counts(), default=(3, 4, 5), help="How many VM counts to measure.  [default: 3,4,5]")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the draw, beyond a million subsets."
)
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
def subset(samples: Path, max_vms: int, sizes: tuple[int, ...], seed: int, as_json: bool) -> None:
    """Which VM counts to measure: the subset from which the models predict the other counts of SAMPLES best.

    \b
    Example:
      penstock mst subset samples.csv --max-vms 24
    """
    from penstock.models.mst.samples import parse_samples
    from penstock.models.mst.training_subset import best_training_subset
    from penstock.report.mst_results import vm_count_choice

    found = parse_samples(read_text(samples), source=str(samples))
    report = vm_count_choice(best_training_subset(list(found.values()), max_vms=max_vms, sizes=sizes, seed=seed))
    if as_json:
        _print_json(report)
        return

    from rich.console import Console
    from rich.table import Table

    table = Table("VM counts", "RMSE (of the largest sample)", "subsets tried")
    tried = f"{report.tried}" if report.exhaustive else f"{report.tried} of {report.subsets}, drawn with seed {seed}"
    table.add_row(", ".join(map(str, report.vms)), f"{report.rmse:.4f}", tried)
    Console().print(table)


def _print_json(report: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(report)).decode())
