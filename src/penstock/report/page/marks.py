"""Marks on the time axis: plan changes, recommendations, errors and resumptions."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.plan import diff
from penstock.report.page.axes import Timeline
from penstock.report.run_report import RunReport

# Least distances, as shares of the width.
_LABEL_DISTANCE = 0.06
_LABEL_DISTANCE_ON_PHONE = 0.2
_LINE_DISTANCE = 0.004
_MAX_TEXTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    position: float  # share of the width
    kind: str  # change, failed, advice, error, resumed or split
    label: str = ""
    anchor: str | None = None  # id of the table row with the details
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkLabel:
    """The label of a mark and of the marks that are too close to have a label of their own."""

    mark: Mark
    label: str
    text: str
    is_hidden_on_phone: bool


def marks(report: RunReport, timeline: Timeline) -> tuple[Mark, ...]:
    """Return the marks of a run in the order of time."""
    if timeline.length_s <= 0:
        return ()

    def position(at_s: float) -> float:
        return timeline.run_time_s(at_s) / timeline.length_s

    changes = [
        Mark(
            position=position(numbered.change.at_s),
            kind="change" if numbered.change.outcome == "ok" else "failed",
            label=f"P{numbered.number}",
            anchor=f"change-{numbered.number}",
            text=f"{numbered.change.asked}: {numbered.change.reason}",
        )
        for numbered in report.plan_changes
    ]
    recommendations = [
        Mark(
            position=position(group.since_s),
            kind="advice",
            label=f"D{group.number}",
            anchor=f"decision-{group.number}",
            text=f"recommended: {diff(group.decision.old, group.decision.new)}",
        )
        for group in report.change_decisions
        if group.decision.applied == "recommended" and group.decision.new is not None
    ]
    errors = [
        Mark(
            position=position(group.since_s),
            kind="error",
            label=f"E{group.number}",
            anchor=f"error-{group.number}",
            text=f"error in {group.error.where}",
        )
        for group in report.errors
    ]
    resumptions = [Mark(position=at_s / timeline.length_s, kind="resumed") for at_s in timeline.resumed_at_s]
    return tuple(sorted([*changes, *recommendations, *errors, *resumptions], key=lambda mark: mark.position))


def labels(marks: tuple[Mark, ...]) -> tuple[MarkLabel, ...]:
    """Return the labels of marks. A mark whose label would cover another one is counted there, as in 'P3 +2'."""
    groups: list[list[Mark]] = []
    for mark in marks:
        if mark.anchor is None:
            continue
        if groups and mark.position - groups[-1][0].position < _LABEL_DISTANCE:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    labels: list[MarkLabel] = []
    for first, *others in groups:
        previous = next((label for label in reversed(labels) if not label.is_hidden_on_phone), None)
        labels.append(
            MarkLabel(
                mark=first,
                label=first.label + (f" +{len(others)}" if others else ""),
                text="; ".join([mark.text for mark in (first, *others)][:_MAX_TEXTS]),
                is_hidden_on_phone=previous is not None
                and first.position - previous.mark.position < _LABEL_DISTANCE_ON_PHONE,
            )
        )
    return tuple(labels)


def distinct_lines(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """Return the marks without those that would be drawn on top of the previous one."""
    lines: list[Mark] = []
    for mark in marks:
        if not lines or mark.position - lines[-1].position >= _LINE_DISTANCE or mark.kind != lines[-1].kind:
            lines.append(mark)
    return tuple(lines)
