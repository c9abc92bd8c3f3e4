"""The result of a profile, and its progress, as values with a JSON form."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.plan import Plan
from penstock.store import ProfiledOperator


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
    rows_per_s: float
    latency_s: float
    latency_target_s: float
    meets_target: bool
    unfinished_rows: int  # rows in flight of the best round
    reason: str  # why the study ended
    operators: tuple[ProfiledOperator, ...]
    rounds: tuple[ProfileRound, ...]
    seconds: float  # duration of all trials
    saved_s: float


class ProfileProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a study. `rounds` is the number of rounds so far, `round` the latest one."""

    step: Literal["features", "platform", "capacity"]
    rounds: int
    max_rounds: int
    round: ProfileRound | None = None
    remaining_s: float | None = None  # at most, in the time of the engine; None before the first round
