"""`penstock.calibrate`: the two costs of an engine that policy `fission-model` needs."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.api.policy_options import OptionError
from penstock.api.profiling import ProfiledEngine, ProfileOptions, prepared
from penstock.dataflow import Dataflow
from penstock.dataflow.argument_types import checked_types

if TYPE_CHECKING:
    from penstock.engines.simulated import Behaviour
    from penstock.study.fission_calibration import FissionCalibration


@checked_types(OptionError)
def calibrate(
    flow: Dataflow | str,
    *,
    replicas: Sequence[int] = (1, 2, 4),
    slots: int | None = None,
    cluster: str | Path | None = None,
    spark: Any = None,
    engine: ProfiledEngine | None = None,
    behaviour: Behaviour | str | Path | None = None,
    window_s: float = 10.0,
    seed: int = 0,
) -> FissionCalibration:
    """Measure what an engine adds to the work of operators: the time to pass a row, and to distribute rows.

    The dataflow runs once with each number of replicas, under more rows than it can process. Use a dataflow of one
    region, such as "penstock.apps.joker:one_operator". The slowest of several regions is used. The costs belong to
    the engine and the platform, so one calibration serves all dataflows with rows of similar size.

    Args:
        flow: A dataflow, "FILE[:name]" or "MODULE[:name]". Its sinks write nothing.
        replicas: Numbers of replicas to measure.
        slots: Number of slots of the platform. The default on Spark is the number of processors.
        cluster: Directory of a running cluster. The default is a local Spark session with `slots` slots.
        spark: An existing Spark session, which stays open.
        engine: "spark", or a simulated engine: "row-by-row" or "micro-batch".
        behaviour: Simulated cost of the operators and of the engine, as a value or as a JSON file.
        window_s: Length of a measurement.
        seed: Seed of the random numbers of a simulation.

    Returns:
        The costs (for `thread_s` and `replica_s` of `penstock.run`), the trials, and the largest error of the model.

    Raises:
        OptionError: An option has an invalid value or does not fit the others.
        PenstockError: A source accepts no rate, or a trial failed.
    """
    from penstock.store import Store
    from penstock.study.fission_calibration import calibrate as calibrate_engine

    if not 0 < window_s < float("inf"):
        raise OptionError(f"window_s is {window_s}; it must be a finite number above 0.")
    options = ProfileOptions(latency_s=1.0, engine=engine, slice=1.0, k=1.0, alpha=1.0, types={}, seed=seed)
    study = prepared(flow, options, behaviour=behaviour, like=None, cluster=cluster, spark=spark)
    platform = study.platform(slots, None)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-calibration-") as folder,
        Store(folder) as store,
        contextlib.closing(study.trials(platform, Path(folder), store)) as trials,
    ):
        return calibrate_engine(trials.fresh, study.flow, replicas, slots=platform.slots, window_s=window_s)
