"""What happened, on the plots: plan changes, recommendations, errors, resumptions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.plan import diff
from penstock.report.page.axes import Timeline
from penstock.report.record import Report

_LABEL_APART = 0.06  # of the width
_LABEL_APART_ON_A_PHONE = 0.2
_MOST_TEXTS = 5
_LINE_APART = 0.004


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    at: float  # share of the width
    kind: str  # change, failed, advice, error, resumed
    label: str
    anchor: str | None  # of the row that tells more
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Of a mark, and of those too close to it to have one of their own."""

    mark: Mark
    label: str
    text: str
    tight: bool  # has no room on a phone


def marks(report: Report, line: Timeline) -> tuple[Mark, ...]:
    """In the order of time."""
    if line.length_s <= 0:
        return ()

    def share(at_s: float) -> float:
        return line.ran_s(at_s) / line.length_s

    found = []
    for one in report.plan_changes:
        change = one.change
        found.append(
            Mark(
                at=share(change.at_s),
                kind="change" if change.outcome == "ok" else "failed",
                label=f"P{one.number}",
                anchor=f"change-{one.number}",
                text=f"{change.asked}: {change.reason}",
            )
        )
    for group in report.change_decisions:
        row = group.decided
        if row.applied == "recommended" and row.new is not None:
            found.append(
                Mark(
                    at=share(group.since_s),
                    kind="advice",
                    label=f"D{group.number}",
                    anchor=f"decision-{group.number}",
                    text=f"recommended: {diff(row.old, row.new)}",
                )
            )
    for error in report.errors:
        found.append(
            Mark(
                at=share(error.since_s),
                kind="error",
                label=f"E{error.number}",
                anchor=f"error-{error.number}",
                text=f"error in {error.error.where}",
            )
        )
    for ran_s in line.resumed_at:
        found.append(Mark(at=ran_s / line.length_s, kind="resumed", label="resumed", anchor=None, text="resumed"))
    return tuple(sorted(found, key=lambda one: one.at))


def labelled(found: tuple[Mark, ...]) -> tuple[Label, ...]:
    """A label that would cover another is counted in it, as in 'P3 +2'."""
    groups: list[list[Mark]] = []
    for mark in found:
        if mark.anchor is None:
            continue
        if groups and mark.at - groups[-1][0].at < _LABEL_APART:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    labels: list[Label] = []
    for first, *more in groups:
        before = next((one for one in reversed(labels) if not one.tight), None)
        labels.append(
            Label(
                mark=first,
                label=first.label + (f" +{len(more)}" if more else ""),
                text="; ".join([one.text for one in (first, *more)][:_MOST_TEXTS]),
                tight=before is not None and first.at - before.mark.at < _LABEL_APART_ON_A_PHONE,
            )
        )
    return tuple(labels)


def apart(found: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Lines that can be told from each other."""
    kept: list[Mark] = []
    for mark in found:
        if not kept or mark.at - kept[-1].at >= _LINE_APART or mark.kind != kept[-1].kind:
            kept.append(mark)
    return tuple(kept)
