"""penstock profile: the best plan of a dataflow on a given platform, or on each of several platforms."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from penstock.api.profiling import OPERATOR_TYPES, PLAN_FILE, PROFILED_ENGINES, ProfiledEngine
from penstock.cli.parameters import ABOVE_0, PLOT, Counts, Finite, json_option, texts_by_name

if TYPE_CHECKING:
    from penstock.study.stepwise.profile import Profile, ProfileProgress, ProfileRound


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option(
    "--latency-ms", type=ABOVE_0, default=500.0, show_default=True, help="Highest mean latency in milliseconds."
)
@click.option("--slots", type=Counts(required=True), help="Slots of the platform.  [default: the processors]")
@click.option("--executors", type=Counts(required=True), help="Executors of the cluster or of the simulation.")
@click.option("--cluster", type=click.Path(path_type=Path), help="Directory of a running 'penstock cluster'.")
@click.option("--rate", type=ABOVE_0, help="Rows per second for which to find the smallest of several platforms.")
@click.option(
    "--engine",
    type=click.Choice(PROFILED_ENGINES),
    help="Where trials run; the last two are simulated.  [default: spark, or row-by-row if costs are given]",
)
@click.option("--behaviour", type=click.Path(path_type=Path), help="JSON file with simulated costs of the operators.")
@click.option("--like", type=click.Path(path_type=Path), help="Directory of a run whose operator costs are simulated.")
@click.option(
    "--slice",
    "slice_",
    type=Finite(min=0, max=1, min_open=True),
    default=0.3,
    show_default=True,
    help="Unit of the task load; smaller units follow the ratio of the loads more closely.",
)
@click.option(
    "--k",
    type=Finite(min=1),
    default=2.0,
    show_default=True,
    help="Stop when operator latencies are within this multiple of their minimum.",
)
@click.option(
    "--alpha",
    type=Finite(min=0, max=1, min_open=True),
    default=0.9,
    show_default=True,
    help="Share of the best throughput below which the platform is used up.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="OPERATOR=TYPE",
    help=f"Type of an operator, if it is known: {', '.join(OPERATOR_TYPES)}. May be repeated.  [default: measured]",
)
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Study directory.  [default: studies/<flow>-profile]"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the random numbers.")
@PLOT
@json_option("Print the result as JSON.")
def command(
    flow: str,
    latency_ms: float,
    slots: tuple[int, ...] | None,
    executors: tuple[int, ...] | None,
    cluster: Path | None,
    rate: float | None,
    engine: ProfiledEngine | None,
    behaviour: Path | None,
    like: Path | None,
    slice_: float,
    k: float,
    alpha: float,
    types: tuple[str, ...],
    at: Path | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Find the plan with the highest throughput within a latency target by trials, on Spark or in simulation.

    Trials run on a local Spark session with --slots slots, or on a cluster. They are simulated if --behaviour or --like
    is given. Each trial is stored when it ends; the same command continues an interrupted study. The best plan is
    written to plan.json in the study directory, for run --plan. Several numbers of slots or executors are profiled one
    after another.

    \b
    Example:
      penstock profile flow.py --slots 16 --latency-ms 500 --at studies/wc
      penstock profile flow.py --cluster runs/cluster --executors 1,2,4 --rate 5000 --plot curve.html
      penstock profile flow.py --slots 16 --like runs/wc --engine micro-batch --type top=logic-dependent --json
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.profile_tables import platforms_table, profile_tables
    from penstock.study.stepwise.platform_curve import PlatformCurve

    counts = slots or executors or ()
    options: dict[str, Any] = {
        "latency_s": latency_ms / 1e3,
        "cluster": cluster,
        "engine": engine,
        "behaviour": behaviour,
        "like": like,
        "slice": slice_,
        "k": k,
        "alpha": alpha,
        "types": texts_by_name(types, "--type"),
        "at": at,
        "seed": seed,
    }
    with LiveRounds(quiet=as_json) as live:
        if len(counts) > 1 or rate is not None or plot is not None:
            result: Profile | PlatformCurve = penstock.profile_platforms(
                flow,
                slots=slots or (),
                executors=executors or (),
                rows_per_s=rate,
                plot=plot,
                on_progress=live.show_platform,
                **options,
            )
        else:
            result = penstock.profile(
                flow,
                slots=None if slots is None else slots[0],
                executors=None if executors is None else executors[0],
                on_progress=live.show,
                **options,
            )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
        return
    console = Console(highlight=False)
    if isinstance(result, PlatformCurve):
        console.print(platforms_table(result))
        return
    console.print(profile_tables(result))
    file = (Path("studies") / f"{result.dataflow}-profile" if at is None else at) / PLAN_FILE
    console.print(f"penstock run {flow} --plan {file}", soft_wrap=True)


class LiveRounds:
    """The table of rounds, which grows while the study runs and disappears at its end. `quiet` shows nothing."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._rounds: list[ProfileRound] = []
        self._platform: int | None = None
        console = Console(stderr=True, highlight=False)
        self._live = Live(console=console, transient=True) if not quiet and console.is_terminal else None

    def show(self, progress: ProfileProgress) -> None:
        from penstock.report.profile_tables import rounds_table

        if progress.round is not None:
            self._rounds.append(progress.round)
        if self._live is not None:
            self._live.update(rounds_table(self._rounds, progress), refresh=True)

    def show_platform(self, count: int, progress: ProfileProgress) -> None:
        """Show the study of one of several platforms."""
        if count != self._platform:
            self._platform, self._rounds = count, []
        self.show(progress)

    def __enter__(self) -> LiveRounds:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
