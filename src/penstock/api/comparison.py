"""`penstock.compare`: whether two dataflows have the same result, and which one sustains a higher rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.input_files import dataflow_from
from penstock.api.policy_options import OptionError
from penstock.api.profile_trials import given_session, spark_platform
from penstock.api.profiling import ProfiledEngine, profile
from penstock.api.record import RunRecord
from penstock.dataflow import Dataflow, Kind
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.errors import PenstockError, SparkUnavailableError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour
    from penstock.store import Trial
    from penstock.study.stepwise.comparison import ComparedDataflow, Comparison, DifferenceCause, ResultCheck, Side
    from penstock.study.stepwise.profile import Profile, ProfileProgress

SAMPLE_ROWS = 1_000
_DEFAULT_ENGINE = "spark"
_SIMULATED_ENGINE = "row-by-row"


@checked_types(OptionError)
def compare(
    a: Dataflow | str,
    b: Dataflow | str,
    *,
    slots: int,
    latency_s: float = 0.5,
    spark: Any = None,
    engine: ProfiledEngine | None = None,
    behaviour_a: Behaviour | str | Path | None = None,
    behaviour_b: Behaviour | str | Path | None = None,
    like_a: RunRecord | str | Path | None = None,
    like_b: RunRecord | str | Path | None = None,
    check: bool = True,
    sample_rows: int = SAMPLE_ROWS,
    types_a: Mapping[str, str] | None = None,
    types_b: Mapping[str, str] | None = None,
    at: str | Path | None = None,
    seed: int = 0,
    on_message: Callable[[str], None] | None = None,
    on_progress: Callable[[str, ProfileProgress], None] | None = None,
) -> Comparison:
    """Compare two implementations of the same computation: their results, then their highest throughput.

    Both dataflows first process the same sample of the input of `a` as one batch on Spark, and their results are
    compared as multisets of rows. If they are equal, both dataflows are profiled, and the throughput of their best
    plans is compared. The same call continues an interrupted comparison.

    Args:
        a: A dataflow, "FILE[:name]" or "MODULE[:name]".
        b: The other dataflow. Its sources have the same names and schemas.
        slots: Number of slots of the platform.
        latency_s: Highest mean latency.
        spark: An existing Spark session with so many slots, which stays open. The default is the active session, if
            there is one, and new sessions otherwise.
        engine: Engine of the trials, one of those of `penstock.profile`. The default is Spark, or "row-by-row" if costs
            are given.
        behaviour_a: Simulated cost of the operators of `a`, as a value or as a JSON file.
        behaviour_b: Simulated cost of the operators of `b`.
        like_a: A run of `a` whose measured operator costs are simulated.
        like_b: A run of `b`.
        check: Whether to compare the results. This needs Spark also if the throughput is simulated.
        sample_rows: Rows of each source that both dataflows process for the check.
        types_a: Types of operators of `a`, if they are known, as for `penstock.profile`.
        types_b: Types of operators of `b`.
        at: Directory of both studies; default `studies/<name of a>-and-<name of b>`.
        seed: Seed of the random numbers of a simulation.
        on_message: Called with a sentence at the start of each step.
        on_progress: Called with the name of a dataflow and the progress of its profile.

    Returns:
        The result of the check, both profiles in short, the ratio of the throughputs with its confidence interval, and
        the operator that causes the difference. If the results differ, nothing is profiled.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: The sources of both dataflows differ, or a dataflow fails.
    """
    from penstock.study.stepwise.comparison import Comparison

    if sample_rows < 1:
        raise OptionError(f"sample_rows is {sample_rows}; at least 1 row is required.")
    simulated = _is_simulated((behaviour_a, like_a), (behaviour_b, like_b))
    used = engine or (_SIMULATED_ENGINE if simulated else _DEFAULT_ENGINE)
    if simulated is (used == _DEFAULT_ENGINE):
        raise OptionError(
            f"Engine '{used}' "
            + (
                "takes no behaviour and no 'like'."
                if simulated
                else "needs the cost of the operators of both dataflows."
            )
        )
    say = on_message or (lambda message: None)
    first, second = dataflow_from(a), dataflow_from(b)
    spark = given_session(spark, None)
    if not simulated:
        spark_platform(slots, None, None, spark)  # the slots must be those of the session
    checked = _checked_results(first, second, sample_rows, say, spark) if check else None
    comparison = Comparison(slots=slots, latency_target_s=latency_s, engine=used, check=checked)
    if checked is not None and not checked.equal:
        return comparison
    directory = Path("studies") / f"{first.name}-and-{second.name}" if at is None else local_directory(at)
    sides = []
    for side, flow, given, behaviour, like, types in (
        ("a", first, a, behaviour_a, like_a, types_a),
        ("b", second, b, behaviour_b, like_b, types_b),
    ):
        name = _program(given, flow)
        say(f"profiling {name} on {slots} slots ...")
        options: dict[str, Any] = {} if engine is None else {"engine": engine}
        result = profile(
            given,
            latency_s=latency_s,
            slots=slots,
            spark=None if simulated else spark,
            behaviour=behaviour,
            like=like,
            types=types,
            at=directory / side,
            seed=seed,
            on_progress=None if on_progress is None else _named(on_progress, name),
            **options,
        )
        sides.append((_summary(name, result, directory / side), _best_trial(directory / side, result), flow))
    return _compared(comparison, *sides)


def _is_simulated(*costs: tuple[object, object]) -> bool:
    given = [behaviour is not None or like is not None for behaviour, like in costs]
    if any(given) and not all(given):
        raise OptionError(
            "The cost of the operators is given for one dataflow only; give a behaviour or a run for both, or for "
            "neither to measure on Spark."
        )
    return all(given)


def _program(given: Dataflow | str, flow: Dataflow) -> str:
    return given if isinstance(given, str) else flow.name


def _named(report: Callable[[str, ProfileProgress], None], name: str) -> Callable[[ProfileProgress], None]:
    return lambda progress: report(name, progress)


def _checked_results(a: Dataflow, b: Dataflow, rows: int, say: Callable[[str], None], given: Any) -> ResultCheck:
    from penstock.api.spark_session import prepared_session
    from penstock.study.stepwise.comparison import compared_results

    _check_same_sources(a, b)
    say(f"comparing the results of {a.name} and {b.name} on {rows} rows ...")
    try:
        from penstock.engines.spark.batch_result import batch_results, input_samples
        from penstock.engines.spark.session import end, session

        spark = session("local[2]", "penstock compare") if given is None else prepared_session(given)
    except (SparkUnavailableError, ImportError) as error:
        raise PenstockError(
            f"Results can be compared on Spark only, also if the throughput is simulated: {error} To compare the "
            "throughput alone, switch the check of the results off (--no-check, or check=False)."
        ) from None
    try:
        samples = input_samples(a, rows)
        return compared_results(batch_results(a, samples, spark), batch_results(b, samples, spark), sample_rows=rows)
    finally:
        if given is None:
            end(spark)


def _check_same_sources(a: Dataflow, b: Dataflow) -> None:
    """Raise PenstockError unless both dataflows have sources with the same names and columns."""
    sources_a, sources_b = (
        {operator.name: operator.columns for operator in flow.operators if operator.kind is Kind.SOURCE}
        for flow in (a, b)
    )
    if sources_a != sources_b:
        texts = [
            "; ".join(f"{name} ({', '.join(columns or ())})" for name, columns in sources.items())
            for sources in (sources_a, sources_b)
        ]
        raise PenstockError(
            f"The sources of the dataflows differ: {texts[0]} in '{a.name}', but {texts[1]} in '{b.name}'. Both must "
            "read the same input: give their sources the same names and columns, or do not compare results."
        )


def _best_trial(directory: Path, result: Profile) -> Trial:
    """Return the stored trial of the best round, which has the throughput of each window."""
    from penstock.store import StoreReader

    with StoreReader(directory) as reader:
        trials = [trial for trial in reader.trials() if trial.study == "profile" and trial.samples]
    return trials[result.best - 1]


def _summary(program: str, result: Profile, directory: Path) -> ComparedDataflow:
    from penstock.study.stepwise.comparison import ComparedDataflow, seconds_per_external_row
    from penstock.study.stepwise.sequential_test import trial_interval

    low, high = trial_interval(_best_trial(directory, result).samples)
    return ComparedDataflow(
        program=program,
        dataflow=result.dataflow,
        plan=result.plan,
        rows_per_s=result.rows_per_s,
        low_rows_per_s=low,
        high_rows_per_s=high,
        latency_s=result.latency_s,
        meets_target=result.meets_target,
        rounds=len(result.rounds),
        seconds=result.seconds,
        seconds_per_row=seconds_per_external_row(result.operators),
    )


_Profiled = tuple["ComparedDataflow", "Trial", Dataflow]


def _compared(comparison: Comparison, a: _Profiled, b: _Profiled) -> Comparison:
    import msgspec

    from penstock.study.stepwise.comparison import throughput_ratio
    from penstock.study.stepwise.sequential_test import Verdict

    ratio = throughput_ratio(a[1].samples, b[1].samples)
    faster: Side | None = {Verdict.BETTER: "b", Verdict.WORSE: "a"}.get(ratio.verdict)  # type: ignore[assignment]
    cause = None
    if faster is not None:
        cause = _cause("b", b, a) if faster == "a" else _cause("a", a, b)
    return msgspec.structs.replace(comparison, a=a[0], b=b[0], ratio=ratio, faster=faster, cause=cause)


def _cause(side: Side, slower: _Profiled, faster: _Profiled) -> DifferenceCause | None:
    from penstock.dataflow.regions import regions
    from penstock.study.stepwise.comparison import difference_cause

    summary, trial, flow = slower
    return difference_cause(
        side,
        summary.seconds_per_row,
        faster[0].seconds_per_row,
        regions={} if trial.profile is None else trial.profile.regions,
        single={
            region.name: region.operators
            for region in regions(flow)
            if not region.replicable and region.kind is not Kind.SOURCE
        },
    )
