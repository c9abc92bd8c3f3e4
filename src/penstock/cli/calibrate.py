"""penstock calibrate: the costs of an engine for policy fission-model."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.profiling import PROFILED_ENGINES, ProfiledEngine
from penstock.cli.parameters import ABOVE_0, Counts, json_option


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option("--replicas", type=Counts(required=True), default="1,2,4", show_default=True, help="Replicas to measure.")
@click.option("--slots", type=click.IntRange(min=1), help="Slots of the platform.  [default: the processors]")
@click.option("--cluster", type=click.Path(path_type=Path), help="Directory of a running 'penstock cluster'.")
@click.option(
    "--engine",
    type=click.Choice(PROFILED_ENGINES),
    help="Where trials run; the last two are simulated.  [default: spark, or row-by-row if costs are given]",
)
@click.option("--behaviour", type=click.Path(path_type=Path), help="JSON file with simulated costs of the operators.")
@click.option("--window-s", type=ABOVE_0, default=10.0, show_default=True, help="Length of a measurement in seconds.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@json_option("Print the result as JSON.")
def command(
    flow: str,
    replicas: tuple[int, ...],
    slots: int | None,
    cluster: Path | None,
    engine: ProfiledEngine | None,
    behaviour: Path | None,
    window_s: float,
    seed: int,
    as_json: bool,
) -> None:
    """Measure what an engine adds to the work of operators, once per engine and platform, for policy fission-model.

    The dataflow runs once with each number of replicas, under more rows than it can process.

    \b
    Example:
      penstock calibrate penstock.apps.joker:one_operator --slots 4
      penstock run flow.py --policy fission-model --thread-ms 0.12 --replica-ms 0.03 --mode active
    """
    import msgspec

    import penstock

    result = penstock.calibrate(
        flow,
        replicas=replicas,
        slots=slots,
        cluster=cluster,
        engine=engine,
        behaviour=behaviour,
        window_s=window_s,
        seed=seed,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return
    for trial in result.trials:
        click.echo(
            f"{trial.replicas} replicas: {trial.rows_per_s:,.4g} rows/s; {trial.work_s * 1e3:.4g} ms of work per row"
        )
    click.echo(f"--thread-ms {result.costs.thread_s * 1e3:.4g} --replica-ms {result.costs.replica_s * 1e3:.4g}")
    click.echo(f"largest error of a predicted throughput: {result.largest_error:.1%}")
