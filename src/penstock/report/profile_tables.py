"""Tables of a profile: the operators, the rounds and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.plan.counts import slots_text
from penstock.plan.plan import Plan
from penstock.store import ProfiledOperator
from penstock.study.stepwise.platform_curve import PlatformCurve
from penstock.study.stepwise.profile import Profile, ProfileProgress, ProfileRound

_BAR = 20  # characters of the longest bar


def rounds_table(rounds: Sequence[ProfileRound], progress: ProfileProgress | None = None) -> Table:
    """Return one row per round. The caption shows the progress of a study that is not finished."""
    table = Table(
        "round", "plan", "rows/s", "95 % interval", "latency", "change", "result", "reason",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0), caption_justify="left",
        caption=None if progress is None else progress_text(progress),
    )  # fmt: skip
    for row in rounds:
        table.add_row(
            str(row.number),
            _plan_text(row),
            f"{row.rows_per_s:,.0f}",
            f"{row.low_rows_per_s:,.0f} to {row.high_rows_per_s:,.0f}",
            f"{row.latency_s * 1e3:,.0f} ms",
            row.change if row.gain is None else f"{row.change}: {row.gain:+.1%}",
            f"{row.verdict or 'first'}, {'kept' if row.kept else 'revoked'}",
            row.reason,
        )
    return table


def progress_text(progress: ProfileProgress) -> str:
    """
    >>> progress_text(ProfileProgress(step="platform", rounds=3, max_rounds=40, remaining_s=185.0))
    'step platform, round 3 of at most 40, about 185 s of trials remaining'
    """
    text = f"step {progress.step}, round {progress.rounds} of at most {progress.max_rounds}"
    if progress.remaining_s is None:
        return text
    return f"{text}, about {progress.remaining_s:.0f} s of trials remaining"


def profile_tables(profile: Profile) -> Group:
    """Return the operators, the rounds, and the result in words."""
    target = "meets" if profile.meets_target else "misses"
    throttled = "" if profile.throttle == 1 else f" (throttled to {profile.throttle:.0%})"
    result = (
        f"best plan: {_replicas_text(profile.plan)} on {slots_text(profile.plan.slots)}: "
        f"{profile.rows_per_s:,.0f} rows/s, "
        f"latency {profile.latency_s * 1e3:,.0f} ms ({target} the target of {profile.latency_target_s * 1e3:,.0f} ms)\n"
        f"cuts: {', '.join(sorted(profile.plan.cuts)) or 'none'}\n"
        f"rows in flight: {profile.unfinished_rows:,}{throttled}; a run does not limit them, so these figures hold for "
        "loads up to this rate\n"
        f"ended because {profile.reason}\n"
        f"{len(profile.rounds)} rounds in {profile.seconds:,.0f} s; "
        f"trials that ended early saved {profile.saved_s:,.0f} s"
    )
    return Group(_operators_table(profile.operators), rounds_table(profile.rounds), Text(result))


def platforms_table(curve: PlatformCurve) -> Group:
    """Return one row per platform, and the smallest one for the given rate in words."""
    most = max(point.rows_per_s for point in curve.points)
    table = Table(
        curve.machines, "rows/s", "95 % interval", "", "latency", "plan", "rounds",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for point in curve.points:
        missed = "" if point.meets_target else ", misses the target"
        table.add_row(
            str(point.count),
            f"{point.rows_per_s:,.0f}",
            f"{point.low_rows_per_s:,.0f} to {point.high_rows_per_s:,.0f}",
            "█" * max(1, round(_BAR * point.rows_per_s / most)),
            f"{point.latency_s * 1e3:,.0f} ms{missed}",
            _replicas_text(point.plan),
            str(point.rounds),
        )
    return Group(table, *([] if curve.rows_per_s is None else [Text(_smallest_text(curve))]))


def _smallest_text(curve: PlatformCurve) -> str:
    rate, target = f"{curve.rows_per_s:,.0f} rows/s", f"within {curve.latency_target_s * 1e3:,.0f} ms"
    if curve.smallest is None:
        return f"none of these platforms sustains {rate} {target}; profile larger ones"
    unit = curve.machines.removesuffix("s") if curve.smallest == 1 else curve.machines
    return f"{rate} {target} need {curve.smallest} {unit}"


def _operators_table(operators: Sequence[ProfiledOperator]) -> Table:
    table = Table(
        "operator", "type", "minimal latency", "rows per external row", "share of all rows", "of all bytes",
        box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for operator in operators:
        table.add_row(
            operator.operator,
            operator.type,
            f"{operator.min_latency_s * 1e3:.3g} ms",
            f"{operator.rows_in:.3g}",
            _shares_text(operator.streams),
            _shares_text(operator.streams_bytes or {}),
        )
    return table


def _shares_text(streams: Mapping[str, float]) -> str:
    return ", ".join(f"to {consumer} {share:.1%}" for consumer, share in streams.items()) or "-"


def _plan_text(row: ProfileRound) -> str:
    limits = f"source {row.source_tasks}" if row.throttle == 1 else f"source {row.source_tasks} x {row.throttle:.2f}"
    return f"{limits}, {_replicas_text(row.plan)}"


def _replicas_text(plan: Plan) -> str:
    return ", ".join(f"{name} {count}" for name, count in plan.replicas.items())
