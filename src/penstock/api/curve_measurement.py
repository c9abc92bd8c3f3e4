"""`penstock.measure_curves` and `penstock.measured_curves`: performance curves of operators by trials."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.curve_trials import session_fingerprint, simulated_trials, spark_trials
from penstock.api.input_files import dataflow_from
from penstock.api.policy_options import OptionError
from penstock.api.simulated_costs import operator_costs
from penstock.dataflow import Dataflow, Operator
from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.local_paths import local_directory
from penstock.dataflow.operator_class import PortOperator

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour
    from penstock.study.curves.measured_curve import MeasuredCurve
    from penstock.study.curves.study import CurveProgress, CurveSettings

_STUDIES, _SUFFIX = Path("studies"), "-curves"  # the default directories: studies/<name of the dataflow>-curves


@checked_types(OptionError)
def measure_curves(
    flow: Dataflow | str,
    *,
    operators: Iterable[str] | None = None,
    threads: Sequence[int] | None = None,
    resolution: float = 0.05,
    window_s: float = 2.0,
    behaviour: Behaviour | str | Path | None = None,
    spark: Any = None,
    cluster: str | Path | None = None,
    reuse: Iterable[str | Path] | None = None,
    at: str | Path | None = None,
    seed: int = 0,
    on_progress: Callable[[CurveProgress], None] | None = None,
) -> list[MeasuredCurve]:
    """Measure the peak rate, CPU and memory of operators on one slot by their number of threads, and store them.

    Each operator runs alone, between a source with a sample of its own input and a sink, in a session with one slot.
    For each number of threads, trials find the highest rate at which neither latency nor backlog grow. Each trial is
    stored when it ends, so the same call continues an interrupted study. The file `curves.json` in the directory has
    the format of `penstock.allocate`.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]".
        operators: Names of the operators to measure; default: all except sources and sinks.
        threads: Numbers of threads to try, ascending from 1; default 1, 2, 4, ..., 256. On Spark, an operator that is
            not declared with threads is measured with 1.
        resolution: Relative distance between the peak rate and the next rate that is not sustained.
        window_s: Length of a measurement window; a trial has eight.
        behaviour: Simulated costs of the operators, as a value or a JSON file. Without it, trials run on Spark.
        spark: An existing Spark session with one slot, which stays open. Without it, one is created.
        cluster: Directory of a running 'penstock cluster' with two or more workers. The operator then has an executor
            of its own, whose CPU and memory are measured, and source and sink run on others.
        reuse: Directories of other studies; default: all `studies/*-curves`. A complete curve of the same function
            there, measured with the same settings, is copied instead of measured. An empty list measures all.
        at: Directory of the study; default `studies/<name of the dataflow>-curves`.
        seed: Seed of the random numbers of a simulation.
        on_progress: Called before each trial.

    Returns:
        The curves, in the order of the operators.

    Raises:
        OptionError: An option has an invalid value.
        CurveStudyError: An operator cannot be measured, or the directory contains trials of another version of its
            function, of another input, or with other settings.
    """
    from penstock.study.curves.function_fingerprint import input_fingerprint, operator_fingerprint
    from penstock.study.curves.measured_curve import load, save, stored_curves, write_curves
    from penstock.study.curves.study import CurveStudy, reusable

    dataflow = dataflow_from(flow)
    if cluster is not None and (spark is not None or behaviour is not None):
        raise OptionError("A curve is measured on a cluster, in a Spark session, or in simulation; give one of them.")
    place = None if cluster is None else local_directory(cluster)
    chosen = _chosen(dataflow, operators)
    directory = _STUDIES / f"{dataflow.name}{_SUFFIX}" if at is None else local_directory(at)
    costs = None if behaviour is None else operator_costs(dataflow, behaviour, None)
    if reuse is None:
        known = _known_curves()
    else:
        known = [curve for other in reuse for curve in stored_curves(local_directory(other))]
    curves = []
    for operator in chosen:
        settings = _settings(operator, threads, resolution, window_s, is_simulated=costs is not None)
        settings.check()
        conditions = {
            "engine": "row-by-row" if costs is not None else "spark" if cluster is None else "spark cluster",
            "threads": ", ".join(map(str, settings.threads)),
            "resolution": f"{resolution:g}",
            "window_s": f"{window_s:g}",
        }
        if costs is not None:
            text = f"{costs.of(operator.name)!r} {seed}"
            conditions["behaviour"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        else:
            conditions["session"] = session_fingerprint(spark, place)
        function = operator_fingerprint(operator)
        input = "" if costs is not None else input_fingerprint(dataflow, operator.name)
        earlier = reusable(known, function, conditions)
        if earlier is not None and load(directory, operator.name) is None:
            save(directory, earlier.replace(operator=operator.name, input=input))
        study = CurveStudy(
            operator=operator.name,
            dataflow=dataflow.name,
            function=function,
            input=input,
            conditions=conditions,
            directory=directory,
            start=simulated_trials(operator, costs, seed)
            if costs is not None
            else spark_trials(dataflow, operator, directory, spark, place),
            settings=settings,
        )
        curves.append(study.run(on_progress))
        write_curves(directory)
    return curves


def measured_curves(at: str | Path | None = None) -> list[MeasuredCurve]:
    """Return the curves in the directory of a study, complete or not. Without `at`, search all `studies/*-curves`.

    Raises:
        CurveStudyError: There are no curves.
    """
    from penstock.study.curves.measured_curve import CurveStudyError, stored_curves

    if at is not None:
        return stored_curves(local_directory(at))
    curves = _known_curves()
    if not curves:
        raise CurveStudyError(
            f"'{_STUDIES}/*{_SUFFIX}' contains no measured curves; give the directory of a study, or measure curves "
            "with 'penstock curves measure'."
        )
    return curves


def _known_curves() -> list[MeasuredCurve]:
    """Return the curves of all studies in the default place, without those of another version of Penstock."""
    from penstock.study.curves.measured_curve import CurveStudyError, stored_curves

    curves: list[MeasuredCurve] = []
    for study in sorted(_STUDIES.glob(f"*{_SUFFIX}")):
        with contextlib.suppress(CurveStudyError):
            curves += stored_curves(study)
    return curves


def plot_curves(curves: Sequence[MeasuredCurve], file: str | Path) -> Path:
    """Write peak rate, CPU and memory by number of threads as an HTML page, and return its path."""
    from penstock.report.page import curves_page, write_page

    path = Path(file)
    write_page(path, curves_page(curves))
    return path


def _settings(
    operator: Operator, threads: Sequence[int] | None, resolution: float, window_s: float, *, is_simulated: bool
) -> CurveSettings:
    from penstock.study.curves.rate_trial import RateTrialSettings
    from penstock.study.curves.study import THREADS, CurveSettings

    if not 0 < window_s < float("inf"):
        raise OptionError(f"window_s is {window_s}; it must be a finite number above 0.")
    counts = tuple(THREADS if threads is None else threads)
    if operator.calls is None and not is_simulated:
        counts = counts[:1]
    return CurveSettings(threads=counts, resolution=resolution, trial=RateTrialSettings(window_s=window_s))


def _chosen(flow: Dataflow, names: Iterable[str] | None) -> list[Operator]:
    # A class with ports has several inputs, or a schedule that depends on them, so it does not run alone.
    measurable = [op for op in flow.operators if op.fn is not None and not isinstance(op.fn, PortOperator)]
    if names is None:
        return measurable
    if isinstance(names, str):
        raise OptionError(f"operators is {names!r}, but it is a list of names; give [{names!r}].")
    by_name = {operator.name: operator for operator in measurable}
    for name in (wanted := list(names)):
        if name not in by_name:
            raise OptionError(
                f"'{name}' is not an operator of '{flow.name}' with a function; they are "
                f"{', '.join(by_name) or 'none'}."
            )
    return [by_name[name] for name in wanted]
