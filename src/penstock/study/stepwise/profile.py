"""The result of a profile, and its progress, as values with a JSON form."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.plan import Plan
from penstock.store import ProfiledOperator

RESULT_FILE = "profile.json"  # in the directory of a finished study


class ProfileRound(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of the profiler."""

    number: int  # from 1
    step: Literal["platform", "capacity"]
    change: str
    reason: str  # why it was tried
    plan: Plan
    source_tasks: int
    throttle: float
    rows_per_s: float
    low_rows_per_s: float  # 95 % confidence interval of the mean
    high_rows_per_s: float
    latency_s: float
    verdict: str | None  # None for the first round
    compared_with: int | None  # number of a round
    gain: float | None  # relative to that round
    kept: bool
    seconds: float  # duration of the trial
    saved_s: float  # time by which it was shorter than the longest trial


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The best plan that a study found, and how it found it."""

    dataflow: str
    plan: Plan
    best: int  # number of the round with this plan, from 1
    rows_per_s: float
    latency_s: float
    latency_target_s: float
    meets_target: bool
    unfinished_rows: int  # rows in flight of the best round, which `source_tasks` and `throttle` limit
    source_tasks: int
    throttle: float
    reason: str  # why the study ended
    operators: tuple[ProfiledOperator, ...]
    rounds: tuple[ProfileRound, ...]
    seconds: float  # duration of all trials
    saved_s: float

    def write(self, directory: Path) -> None:
        """Write the result into the directory of the study. Until then the study is not finished."""
        (directory / RESULT_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(self)))


def result_in(directory: Path) -> Profile | None:
    """Return the result of the study in a directory; None if it is not finished."""
    file = directory / RESULT_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Profile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise PenstockError(
            f"'{file}' is not the result of a profile ({error}); repeat the command of the study to write it again."
        ) from None


class ProfileProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a study. `rounds` is the number of rounds so far, `round` the latest one."""

    step: Literal["features", "platform", "capacity"]
    rounds: int
    max_rounds: int
    round: ProfileRound | None = None
    remaining_s: float | None = None  # expected, in the time of the engine; None before the first round
