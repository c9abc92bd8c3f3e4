"""`penstock.profile_platforms`: the best throughput by slots or executors, and the fewest that sustain a rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.policy_options import OptionError
from penstock.api.profiling import ProfiledEngine, ProfileOptions, prepared
from penstock.api.record import RunRecord
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour
    from penstock.study.stepwise.platform_curve import PlatformCurve
    from penstock.study.stepwise.profile import Profile, ProfileProgress


@checked_types(OptionError)
def profile_platforms(
    flow: Dataflow | str,
    *,
    latency_s: float = 0.5,
    slots: Sequence[int] = (),
    executors: Sequence[int] = (),
    rows_per_s: float | None = None,
    cluster: str | Path | None = None,
    spark: Any = None,
    engine: ProfiledEngine | None = None,
    behaviour: Behaviour | str | Path | None = None,
    like: RunRecord | str | Path | None = None,
    slice: float = 0.3,
    k: float = 2.0,
    alpha: float = 0.9,
    types: Mapping[str, str] | None = None,
    at: str | Path | None = None,
    seed: int = 0,
    plot: str | Path | None = None,
    on_progress: Callable[[int, ProfileProgress], None] | None = None,
) -> PlatformCurve:
    """Profile a dataflow on several platforms: performance against resources (Liu et al. 2017, figure 13).

    Each platform has a study of its own in the directory, so the same call continues after an interruption. The
    features of the operators do not depend on the platform and are measured once.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        latency_s: Highest mean latency.
        slots: Numbers of slots; give either these or `executors`.
        executors: Numbers of executors, on a cluster or in simulation.
        rows_per_s: Rate for which to find the smallest platform.
        cluster: Directory of a running cluster.
        spark: An existing Spark session, which stays open; it has one number of slots. The default is the active
            session, if there is one and no cluster is given.
        engine: "spark", "row-by-row" or "micro-batch"; see `penstock.profile`.
        behaviour: Simulated cost of the operators.
        like: Run whose operator costs are simulated.
        slice: Unit of the task load.
        k: Multiple of the minimal latency at which to stop.
        alpha: Share of the best throughput below which the platform is used up.
        types: Types of operators by name.
        at: Directory of the studies; default `studies/<name of the dataflow>-profile`.
        seed: Seed of the random numbers of a simulation.
        plot: HTML file to write the curve to.
        on_progress: Called with the number of slots or executors at the start and after each round.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: A source cannot be profiled, a trial failed, or the directory contains other trials.
    """
    if bool(slots) == bool(executors):
        raise OptionError("Several platforms are required: give either slots or executors, such as 4,8,16.")
    if rows_per_s is not None and not 0 < rows_per_s < float("inf"):
        raise OptionError(f"rows_per_s is {rows_per_s}; it must be a number above 0.")
    options = ProfileOptions(
        latency_s=latency_s, engine=engine, slice=slice, k=k, alpha=alpha, types=types or {}, seed=seed
    )
    study = prepared(flow, options, behaviour=behaviour, like=like, cluster=cluster, spark=spark)
    machines, counts = ("slots", sorted(set(slots))) if slots else ("executors", sorted(set(executors)))
    platforms = {
        count: study.platform(count, None) if machines == "slots" else study.platform(None, count) for count in counts
    }
    directory = study.directory(at)
    profiles: list[Profile] = []
    for count, platform in platforms.items():

        def report(progress: ProfileProgress, count: int = count) -> None:
            if on_progress is not None:
                on_progress(count, progress)

        known = profiles[0].operators if profiles else ()
        profiles.append(study.run(platform, directory / f"{machines}-{count}", report, known))
    from penstock.study.stepwise.platform_curve import platform_curve

    curve = platform_curve(machines, counts, profiles, rows_per_s=rows_per_s)
    if plot is not None:
        _write_plot(curve, Path(plot))
    return curve


def _write_plot(curve: PlatformCurve, path: Path) -> None:
    from penstock.report.page import platforms_page, write_page
    from penstock.report.profile_report import PlatformResult

    results = [
        PlatformResult(
            machines=curve.machines,
            count=point.count,
            rows_per_s=point.rows_per_s,
            low_rows_per_s=point.low_rows_per_s,
            high_rows_per_s=point.high_rows_per_s,
            latency_s=point.latency_s,
        )
        for point in curve.points
    ]
    write_page(path, platforms_page(curve.dataflow, results))
