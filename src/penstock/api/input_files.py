"""Arguments that are files: read completely, or refused with one clear error."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.spark_session import SessionOnDemand
from penstock.dataflow import Dataflow, DataflowError
from penstock.dataflow.errors import PenstockError, PlanError
from penstock.dataflow.load import load
from penstock.plan.plan import Plan

if TYPE_CHECKING:
    from penstock.models.curve import Curve
    from penstock.planning.plan_prediction import PlanPrediction


def read_file(path: Path, content: str) -> bytes:
    """Return the bytes of a file without the byte-order mark that some editors and spreadsheets write.

    `content` says what it contains, for the error message.
    """
    try:
        return path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise PenstockError(f"Cannot read the {content} file '{path}': {error.strerror}. Check the path.") from None


def read_text(path: Path, content: str = "CSV") -> str:
    """Return the text of a file in UTF-8."""
    try:
        return read_file(path, content).decode()
    except UnicodeDecodeError:
        raise PenstockError(f"The {content} file '{path}' is not text in UTF-8.") from None


def plan_from(plan: Plan | Path | str) -> Plan:
    """Return the plan itself, or the plan in a JSON file."""
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | Path):
        raise PlanError(f"The plan is of type {type(plan).__name__}; give a penstock.Plan or the path of a JSON file.")
    try:
        return Plan.from_json(read_file(Path(plan), "plan"))
    except PlanError as error:
        raise PlanError(f"{plan}: {error}") from None


def prediction_for(plan: Plan | Path | str | None) -> PlanPrediction | None:
    """Return the prediction beside the file of a plan, if there is one and the plan has not changed since then."""
    if plan is None or isinstance(plan, Plan):
        return None
    from penstock.planning.plan_prediction import PlanPrediction, prediction_file

    file = prediction_file(Path(plan))
    if not file.is_file():
        return None
    try:
        prediction = PlanPrediction.from_json(read_file(file, "prediction"))
    except PlanError as error:
        raise PlanError(f"{file}: {error}. You can delete this file.") from None
    return prediction if prediction.plan == plan_from(plan) else None


def dataflow_from(flow: Dataflow | str, spark: SessionOnDemand | None = None) -> Dataflow:
    """Return the checked dataflow; a text is FILE[:name] or MODULE[:name].

    Code that needs Spark while it is loaded uses the session `spark`, or one that is stopped afterwards.
    """
    if isinstance(flow, str):
        on_demand = spark or SessionOnDemand()
        try:
            with on_demand.loading():
                dataflow = load(flow, on_demand)
        finally:
            if spark is None:
                on_demand.stop()
    elif isinstance(flow, Dataflow):
        dataflow = flow
    else:
        raise DataflowError(f"flow is {flow!r}; it must be a Dataflow, 'FILE[:name]' or 'MODULE[:name]'.")
    dataflow.check()
    return dataflow


def curves_at(path: Path) -> dict[str, Curve]:
    """Return the performance curves of a JSON file, or of the directory of a study."""
    from penstock.models.curve import curves_from_json
    from penstock.study.curves.measured_curve import CURVES_FILE

    return curves_from_json(read_file(path / CURVES_FILE if path.is_dir() else path, "curves"))
