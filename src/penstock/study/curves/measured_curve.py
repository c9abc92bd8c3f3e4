"""The measured curve of one operator, with the trials behind it. It is one JSON file, replaced after each trial."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.json_document import JsonDocument
from penstock.models.curve import CurvePoint

FOLDER = "operators"  # in the directory of a study
CURVES_FILE = "curves.json"  # all complete curves, in the format of `penstock allocate`


class CurveStudyError(PenstockError):
    """An operator cannot be measured, or the directory contains trials that do not fit."""


class TrialWindow(msgspec.Struct, frozen=True, kw_only=True):
    """One window of a trial. CPU and memory are in percent of the slot above the idle load."""

    latency_s: float | None  # mean over its rows; None: no row was processed
    cpu: float
    memory: float


class CurveTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial: an operator on one slot, with a number of threads and an input rate."""

    threads: int
    rows_per_s: float  # input rate
    is_stable: bool
    reason: str  # why it is unstable; empty if it is stable
    processed_rows_per_s: float | None
    latency_s: float | None  # mean over the counted windows
    latency_slope: float  # seconds per second
    cpu: float  # percent of the slot above the idle load
    memory: float
    seconds: float  # duration of the trial
    windows: tuple[TrialWindow, ...] = ()  # windows after the warm-up


class PeakRate(msgspec.Struct, frozen=True, kw_only=True):
    """The peak rate of a number of threads: the highest stable rate, and the lowest unstable one above it.

    The intervals contain the mean at the peak with a probability of 95 %, if the windows are independent.
    """

    threads: int
    rows_per_s: float
    unstable_rows_per_s: float | None  # None: no higher rate was tried
    latency_s: float | None
    cpu: float
    memory: float
    latency_interval_s: tuple[float, float] | None = None  # None: fewer than two windows have the value
    cpu_interval: tuple[float, float] | None = None
    memory_interval: tuple[float, float] | None = None


class MeasuredCurve(msgspec.Struct, JsonDocument, frozen=True, kw_only=True):
    """The trials of an operator, and the peak rates that follow from them."""

    noun: ClassVar[str] = "a measured curve"
    json_example: ClassVar[str] = '{"operator": "lookup", "dataflow": "shop", "function": "...", "conditions": {}}'
    error_type: ClassVar[type[PenstockError]] = CurveStudyError

    operator: str
    dataflow: str
    function: str  # fingerprint of the operator's function
    input: str = ""  # fingerprint of what its sample is computed from; empty if the trials are simulated
    conditions: dict[str, str]  # settings; trials under other settings are not comparable
    trials: tuple[CurveTrial, ...] = ()
    peaks: tuple[PeakRate, ...] = ()
    ended: str | None = None  # why no more threads were tried; None: the study was interrupted

    def points(self) -> dict[str, CurvePoint]:
        """Return the points of the curve by number of threads."""
        # A JVM and its Python workers may use more than the one processor of a slot.
        return {
            str(peak.threads): CurvePoint(rows_per_s=peak.rows_per_s, cpu=min(100.0, peak.cpu), memory=peak.memory)
            for peak in self.peaks
        }


def stored_curves(directory: Path) -> list[MeasuredCurve]:
    """Return the curves of a study, by name of the operator. Raises CurveStudyError if there is no study."""
    files = sorted((directory / FOLDER).glob("*.json"))
    if not files:
        raise CurveStudyError(
            f"'{directory}' contains no measured curves; measure them with 'penstock curves measure'."
        )
    return [MeasuredCurve.from_json(file.read_text()) for file in files]


def save(directory: Path, curve: MeasuredCurve) -> None:
    """Store a curve in one step, so that an interruption leaves the previous version."""
    file = directory / FOLDER / f"{curve.operator}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    _replace(file, curve.to_json())


def load(directory: Path, operator: str) -> MeasuredCurve | None:
    """Return the stored curve of an operator, or None."""
    file = directory / FOLDER / f"{operator}.json"
    return MeasuredCurve.from_json(file.read_text()) if file.exists() else None


def write_curves(directory: Path) -> Path:
    """Write all complete curves of a study for `penstock allocate`, and return the file."""
    curves = {curve.operator: curve.points() for curve in stored_curves(directory) if curve.ended is not None}
    file = directory / CURVES_FILE
    _replace(file, msgspec.json.format(msgspec.json.encode(curves)).decode())
    return file


def _replace(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text)
    temporary.replace(file)
