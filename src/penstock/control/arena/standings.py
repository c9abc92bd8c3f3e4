"""The results of the arena: one line per policy, engine and load, the best policy of each cell, and the bars."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from penstock.control.arena.cases import Cell
from penstock.control.arena.matches import Match

STEADY_LOADS = ("flat", "noise", "sine", "day")  # late windows can be avoided
FIXED_LOADS = ("flat", "noise")  # a fixed plan is the cheapest one
_NEAR = 0.03  # relative difference of slot-hours that counts as equal
_MARGIN = 1.2  # late windows relative to the clairvoyant schedule, under loads that change suddenly
_FIXED_COST, _SCHEDULE_COST = 1.10, 1.25
_MOST_CHANGES_PER_HOUR, _LATE_CHANGES = 12.0, 0.5
_DECISION_S = 0.1
_HOURS = 2.0


class Standing(NamedTuple):
    """The results of one policy under one load on one engine."""

    policy: str
    engine: str
    load: str
    cases: int
    late: float  # median share of late windows
    most_late: float
    within: float  # share of the cases with no more late windows than allowed
    fixed_cost: float  # median of the slot-hours relative to the cheapest fixed plan
    schedule_cost: float  # the same relative to the clairvoyant schedule
    most_schedule_cost: float
    changes_per_hour: float  # largest
    backlog_s: float  # longest time in which the rows that wait arrived
    recovery_s: float
    unbounded: int
    covered: int  # windows after changes within the predicted interval
    predicted: int  # all windows after changes


class Bar(NamedTuple):
    """One bar of the benchmark: how many cases meet it, and the worst one."""

    measure: str
    bar: str
    met: int
    cases: int
    worst: float
    worst_cell: str


def allowed_late(match: Match) -> float:
    """Return the share of windows that may be late: sudden changes of the load cannot be known in advance."""
    return match.allowed_late if match.cell.load in STEADY_LOADS else _MARGIN * match.allowed_late


def standings(matches: Iterable[Match]) -> list[Standing]:
    """Return one line per policy, engine and load, the worst policies last."""
    groups: dict[tuple[str, str, str], list[Match]] = {}
    for match in matches:
        groups.setdefault((match.cell.engine, match.cell.load, match.policy), []).append(match)
    rows = [_standing(policy, engine, load, own) for (engine, load, policy), own in groups.items()]
    return sorted(rows, key=lambda row: (row.engine, row.load, -row.within, row.schedule_cost))


def _standing(policy: str, engine: str, load: str, own: Sequence[Match]) -> Standing:
    return Standing(
        policy=policy,
        engine=engine,
        load=load,
        cases=len(own),
        late=median(match.late for match in own),
        most_late=max(match.late for match in own),
        within=sum(match.late <= allowed_late(match) for match in own) / len(own),
        fixed_cost=median(match.relative_cost for match in own),
        schedule_cost=median(match.schedule_cost for match in own),
        most_schedule_cost=max(match.schedule_cost for match in own),
        changes_per_hour=max(match.changes for match in own) / _HOURS,
        backlog_s=max(match.most_backlog_s for match in own),
        recovery_s=max(match.recovery_s for match in own),
        unbounded=sum(match.unbounded for match in own),
        covered=sum(match.coverage[0] for match in own),
        predicted=sum(match.coverage[1] for match in own),
    )


class CellWinner(NamedTuple):
    """The best policy of a cell: the cheapest one of those with no more late windows than allowed, or than the best."""

    cell: Cell
    policy: str
    margin: float  # slot-hours of the second one relative to it, minus 1; 0 without a second one
    best: Match


def winners(matches: Iterable[Match]) -> list[CellWinner]:
    """Return the best policy of each cell."""
    result = []
    for cell, own in by_cell(matches).items():
        ranked = sorted(own, key=_rank)
        second = ranked[1] if len(ranked) > 1 and _rank(ranked[1])[0] == _rank(ranked[0])[0] else None
        margin = 0.0 if second is None else second.slot_hours / ranked[0].slot_hours - 1.0
        result.append(CellWinner(cell=cell, policy=ranked[0].policy, margin=margin, best=ranked[0]))
    return sorted(result, key=lambda winner: winner.cell)


def _rank(match: Match) -> tuple[int, float, float]:
    """Return a key: first the policies that meet the target, by cost; then the others, by late windows."""
    if match.late <= allowed_late(match) and not match.unbounded:
        return 0, match.slot_hours, match.late
    return 1, match.late, match.slot_hours


def by_cell(matches: Iterable[Match]) -> dict[Cell, list[Match]]:
    result: dict[Cell, list[Match]] = {}
    for match in matches:
        result.setdefault(match.cell, []).append(match)
    return result


def is_among_best(match: Match, others: Iterable[Match]) -> bool:
    """Return whether no policy with at most the same late windows, or the allowed ones, costs 3 % less."""
    limit = max(match.late, allowed_late(match))
    return all(
        other.slot_hours >= (1.0 - _NEAR) * match.slot_hours
        for other in others
        if other.late <= limit and not other.unbounded
    )


def bars(matches: Iterable[Match], policy: str = "auto") -> list[Bar]:
    """Return the bars of the benchmark for a policy. 'Best in its cell' compares it with the other policies."""
    cells = by_cell(matches)
    own = [match for known in cells.values() for match in known if match.policy == policy]
    steady = [match for match in own if match.cell.load in STEADY_LOADS]
    sudden = [match for match in own if match.cell.load not in STEADY_LOADS]
    fixed = [match for match in own if match.cell.load in FIXED_LOADS]
    varying = [match for match in own if match.cell.load not in FIXED_LOADS]
    flat = [match for match in own if match.cell.load == "flat"]
    compared = [match for match in own if len(cells[match.cell]) > 1]
    rows = [
        _bar("late windows: flat, noise, sine, day", "<= 1 %", steady, [match.late for match in steady], 0.01),
        _bar(
            "late windows / clairvoyant schedule: step, ramp, spike, bursts",
            f"<= {_MARGIN}",
            sudden,
            [_relative(match.late, match.schedule_late) for match in sudden],
            _MARGIN,
        ),
        _bar(
            "late windows / schedule, at least 1 %: the same",
            f"<= {_MARGIN}",
            sudden,
            [match.late / match.allowed_late for match in sudden],
            _MARGIN,
        ),
        _bar(
            "slot-hours / cheapest fixed plan: flat, noise",
            f"<= {_FIXED_COST:.2f}",
            fixed,
            [match.relative_cost for match in fixed],
            _FIXED_COST,
        ),
        _bar(
            "slot-hours / clairvoyant schedule: others",
            f"<= {_SCHEDULE_COST}",
            varying,
            [match.schedule_cost for match in varying],
            _SCHEDULE_COST,
        ),
        _bar(
            "changes per hour: flat, after the first hour",
            f"<= {_LATE_CHANGES}",
            flat,
            [float(match.late_changes) for match in flat],
            _LATE_CHANGES,
        ),
        _bar(
            "changes per hour: any load",
            f"<= {_MOST_CHANGES_PER_HOUR:g}",
            own,
            [match.changes / _HOURS for match in own],
            _MOST_CHANGES_PER_HOUR,
        ),
        _bar("unbounded backlog", "never", own, [float(match.unbounded) for match in own], 0.0),
        _bar(
            "best, or within 3 % of the best",
            ">= 90 % of cells",
            compared,
            [0.0 if is_among_best(match, cells[match.cell]) else 1.0 for match in compared],
            0.0,
        ),
        _bar("longest decision", "<= 100 ms", own, [match.decide_s for match in own], _DECISION_S),
    ]
    return [row for row in rows if row.cases]


def _relative(late: float, reference: float) -> float:
    """Return a share of late windows relative to another one; 0 is the same as 0, and nothing is a multiple of 0.

    >>> _relative(0.0, 0.0), _relative(0.01, 0.0), _relative(0.01, 0.02)
    (1.0, inf, 0.5)
    """
    if reference > 0.0:
        return late / reference
    return 1.0 if late == 0.0 else math.inf


def _bar(measure: str, bar: str, matches: Sequence[Match], values: Sequence[float], most: float) -> Bar:
    worst = max(range(len(values)), key=lambda at: values[at], default=None)
    return Bar(
        measure=measure,
        bar=bar,
        met=sum(value <= most + 1e-9 for value in values),
        cases=len(values),
        worst=0.0 if worst is None else values[worst],
        worst_cell="-" if worst is None else str(matches[worst].cell),
    )
