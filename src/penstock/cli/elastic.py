"""`penstock elastic`: compare policies that rent VMs for a changing load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import ABOVE_0, PLOT, SHARE, Counts, Finite

if TYPE_CHECKING:
    from penstock.report.mst_results import ElasticResult


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--samples", type=click.Path(path_type=Path), required=True, help="CSV (app,vms,throughput) or study directory."
)
@click.option("--app", help="Name of the application in the samples.  [default: the only one]")
@click.option("--train", type=Counts(), help="VM counts that fit the models.  [default: all others than --validate]")
@click.option("--validate", type=Counts(), help="VM counts that select the model.  [default: the largest count]")
@click.option("--step", type=Finite(min=0), default=0.0, help="VMs that give each parallel unit another thread.")
@click.option(
    "--price", type=ABOVE_0, default=0.10, show_default=True, help="Price of one VM for one hour, in any currency."
)
@click.option(
    "--delay-s",
    type=Finite(min=0),
    default=60.0,
    show_default=True,
    help="Seconds from ordering a VM to its use.",
)
@click.option("--max-vms", type=int, help="Largest number of VMs.  [default: the largest measured count]")
@click.option("--peak", type=ABOVE_0, help="Scale the trace to this peak rate in rows/s.")
@click.option(
    "--choose-share",
    type=SHARE,
    default=0.5,
    show_default=True,
    help="Share of the trace on which policy parameters are selected.",
)
@PLOT
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    trace: Path,
    samples: Path,
    app: str | None,
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
    """Compare policies on TRACE (CSV: time_s,rate or time,rate): their cost, and how often the capacity is too low.

    Policy parameters are selected on the first part of the trace. The results refer to the rest.

    \b
    Example:
      penstock elastic trace.csv --samples samples.csv --app grep --plot schedule.html
      penstock elastic trace.csv --samples studies/wc --peak 5000
    """
    import msgspec

    from penstock.api.mst_models import compare_elastic

    result = compare_elastic(
        trace,
        samples=samples,
        app=app,
        train=train,
        validate=validate,
        step=step,
        price_per_h=price,
        delay_s=delay_s,
        max_vms=max_vms,
        peak=peak,
        choose_share=choose_share,
        plot=plot,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        _print(result)


def _print(result: ElasticResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("policy", "cost/h", "violations", "behind", "lag", "VMs", "peak")
    table.columns[0].no_wrap = True
    for policy in result.policies:
        table.add_row(
            policy.policy,
            f"{policy.cost_per_h:.3f}",
            f"{policy.violations:.3%}",
            f"{policy.behind:.3%}",
            f"{policy.worst_lag_s:.0f} s",
            f"{policy.mean_vms:.1f}",
            str(policy.peak_vms),
        )
    console = Console(highlight=False)
    console.print(table)
    ours, as_good = result.policies[-1], result.as_good
    cost = f"costs {as_good.cost_per_h:.3f}/h ({as_good.policy})" if as_good else "needs more than twice the VMs"
    console.print(f"'{ours.policy}' costs {ours.cost_per_h:.3f}/h; the paper's policy with no more violations {cost}.")
    console.print(
        f"Parameters were selected on {result.judged_from} intervals; results refer to the other "
        f"{result.intervals - result.judged_from}."
    )
    console.print(f"Models: 'elastic +x%' uses {result.paper_model}, 'careful' uses {result.model}.")
