"""`penstock curves`: measure performance curves of operators, and list them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import ABOVE_0, PLOT, Counts, Finite, json_option

if TYPE_CHECKING:
    from penstock.study.curves.measured_curve import MeasuredCurve
    from penstock.study.curves.study import CurveProgress


@click.group()
def command() -> None:
    """Performance curves: peak rate, CPU and memory of an operator on one slot by its number of threads.

    \b
    Example:
      penstock curves measure shop.py --operator lookup --threads 1,2,4,8,16,32
      penstock curves list
      penstock allocate shop.json --rate 500 --curves studies/shop-curves
    """


@command.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option("--operator", "operators", multiple=True, help="Operator to measure; may be repeated.  [default: all]")
@click.option("--threads", type=Counts(required=True), help="Numbers of threads.  [default: 1,2,4,8,...,256]")
@click.option(
    "--resolution",
    type=Finite(min=0.001, max=0.5),
    default=0.05,
    show_default=True,
    help="Relative distance between the peak rate and the next rate that is not sustained.",
)
@click.option(
    "--window",
    "window_s",
    type=ABOVE_0,
    default=2.0,
    show_default=True,
    help="Length of a measurement window in seconds.",
)
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    help="Directory of a running 'penstock cluster': the operator has an executor of its own.",
)
@click.option("--behaviour", type=click.Path(path_type=Path), help="JSON file with simulated costs of the operators.")
@click.option(
    "--reuse",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Study whose curves of the same functions are used; may be repeated.  [default: all studies/<flow>-curves]",
)
@click.option("--no-reuse", is_flag=True, help="Measure all operators, also those with a known curve.")
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Study directory.  [default: studies/<flow>-curves]"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of a simulation.")
@PLOT
@json_option("Print the curves as JSON.")
def measure(
    flow: str,
    operators: tuple[str, ...],
    threads: tuple[int, ...] | None,
    resolution: float,
    window_s: float,
    cluster: Path | None,
    behaviour: Path | None,
    reuse: tuple[Path, ...],
    no_reuse: bool,
    at: Path | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure curves by trials, on a local Spark session with one slot, on a cluster, or in simulation.

    Each operator runs alone, with a sample of its own input. Each trial is stored when it ends; the same command
    continues an interrupted study. The file curves.json in the study directory is the input of 'penstock allocate'.

    \b
    Example:
      penstock curves measure shop.py --operator lookup --threads 1,2,4,8,16,32 --at studies/shop --plot curves.html
    """
    import penstock

    curves = penstock.measure_curves(
        flow,
        operators=operators or None,
        threads=threads,
        resolution=resolution,
        window_s=window_s,
        cluster=cluster,
        behaviour=behaviour,
        reuse=() if no_reuse else reuse or None,
        at=at,
        seed=seed,
        on_progress=None if as_json else _show,
    )
    if plot is not None:
        penstock.plot_curves(curves, plot)
    _print(curves, as_json=as_json)


@command.command("list")
@click.argument("study", type=click.Path(path_type=Path), required=False)
@PLOT
@json_option("Print the curves as JSON.")
def list_(study: Path | None, plot: Path | None, as_json: bool) -> None:
    """Print the measured curves in a study directory, or in all directories studies/<flow>-curves.

    \b
    Example:
      penstock curves list
      penstock curves list studies/shop-curves --json
    """
    import penstock

    curves = penstock.measured_curves(study)
    if plot is not None:
        penstock.plot_curves(curves, plot)
    _print(curves, as_json=as_json)


def _show(progress: CurveProgress) -> None:
    from penstock.report.curve_tables import progress_line

    click.echo(progress_line(progress), err=True)


def _print(curves: list[MeasuredCurve], *, as_json: bool) -> None:
    import msgspec
    from rich.console import Console

    from penstock.report.curve_tables import curve_table

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(curves)).decode())
        return
    console = Console(highlight=False)
    for curve in curves:
        console.print(curve_table(curve))
