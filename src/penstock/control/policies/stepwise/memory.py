"""The memory of the policy as numbers by name, which the store keeps, so that a resumed run continues with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.control.policies.stepwise.recalibration import Cause, Recalibration, RecalibrationStep
from penstock.control.policy import Memory
from penstock.study.stepwise.configuration import Configuration, OperatorMeasurement, Round, TrialChange
from penstock.study.stepwise.sequential_test import Verdict

PREFIX = "stepwise."
_CHANGES, _VERDICTS = tuple(TrialChange), tuple(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """Everything that the policy remembers."""

    slots: int | None = None  # size of the platform at the last decision
    changed: bool = False  # whether the program was another one than the profiled one
    over_s: float | None = None  # time since which backlog or latency are above their threshold
    samples: tuple[float, ...] = ()  # rows/s in the latest windows since then
    costs: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # operator -> seconds per row in them
    sustained: float | None = None  # rows/s of the recalibrated plan; None: the plan is a profiled one
    recalibration: Recalibration | None = None

    def to_memory(self, memory: Memory) -> Memory:
        """Return the memory with these notes instead of earlier ones. Notes of others stay."""
        others = {name: value for name, value in memory.items() if not name.startswith(PREFIX)}
        return others | {PREFIX + name: float(value) for name, value in self._numbers()}

    def _numbers(self) -> Iterator[tuple[str, float]]:
        for name, number in (("slots", self.slots), ("over_s", self.over_s), ("sustained", self.sustained)):
            if number is not None:
                yield name, number
        if self.changed:
            yield "changed", 1.0
        yield from _listed("sample", self.samples)
        for operator, values in self.costs.items():
            yield from _listed(f"cost.{operator}", values)
        if self.recalibration is not None:
            yield from _recalibration_numbers(self.recalibration)

    @staticmethod
    def of(memory: Memory) -> Notes:
        own = {name.removeprefix(PREFIX): value for name, value in memory.items() if name.startswith(PREFIX)}
        slots = own.get("slots")
        costs = {name.rsplit(".", 1)[0] for name in _below(own, "cost.")}
        return Notes(
            slots=None if slots is None else int(slots),
            changed=bool(own.get("changed", 0.0)),
            over_s=own.get("over_s"),
            samples=_list(own, "sample"),
            costs={name: _list(own, f"cost.{name}") for name in sorted(costs)},
            sustained=own.get("sustained"),
            recalibration=_recalibration(own),
        )


def _recalibration_numbers(state: Recalibration) -> Iterator[tuple[str, float]]:
    yield "cause", state.cause
    yield "step", state.step
    yield "size", state.slots
    yield "limit", state.limit
    yield "has_trial", state.has_trial
    if state.changes is not None:
        yield "changes", state.changes
    yield from _named("ratio", state.ratio)
    yield from _named("fixed", state.fixed)
    yield from _named("min_latency", state.min_latency_s)
    yield from _listed("trial", state.samples)
    for number, round_ in enumerate(state.rounds):
        prefix = f"round.{number}"
        yield f"{prefix}.change", _CHANGES.index(round_.change)
        yield f"{prefix}.latency", round_.latency_s
        yield f"{prefix}.source_tasks", round_.configuration.source_tasks
        if round_.verdict is not None:
            yield f"{prefix}.verdict", _VERDICTS.index(round_.verdict)
        yield from _named(f"{prefix}.tasks", round_.configuration.tasks)
        yield from _listed(f"{prefix}.sample", round_.rows_per_s)
        yield from _named(
            f"{prefix}.waiting", {name: operator.latency_s for name, operator in round_.operators.items()}
        )
        yield from _named(
            f"{prefix}.capacity", {name: operator.capacity for name, operator in round_.operators.items()}
        )


def _recalibration(own: Mapping[str, float]) -> Recalibration | None:
    if "cause" not in own:
        return None
    rounds: list[Round] = []
    while (prefix := f"round.{len(rounds)}") and f"{prefix}.change" in own:
        verdict = own.get(f"{prefix}.verdict")
        capacity, waiting = _below(own, f"{prefix}.capacity."), _below(own, f"{prefix}.waiting.")
        rounds.append(
            Round(
                configuration=Configuration(
                    source_tasks=int(own[f"{prefix}.source_tasks"]), tasks=_counts(own, f"{prefix}.tasks.")
                ),
                change=_CHANGES[int(own[f"{prefix}.change"])],
                rows_per_s=_list(own, f"{prefix}.sample"),
                latency_s=own[f"{prefix}.latency"],
                verdict=None if verdict is None else _VERDICTS[int(verdict)],
                operators={
                    name: OperatorMeasurement(latency_s=waiting[name], capacity=capacity[name]) for name in capacity
                },
            )
        )
    changes = own.get("changes")
    return Recalibration(
        cause=Cause(int(own["cause"])),
        step=RecalibrationStep(int(own["step"])),
        slots=int(own["size"]),
        limit=int(own["limit"]),
        ratio=_counts(own, "ratio."),
        fixed=_counts(own, "fixed."),
        min_latency_s=_below(own, "min_latency."),
        rounds=tuple(rounds),
        samples=_list(own, "trial"),
        changes=None if changes is None else int(changes),
        has_trial=bool(own["has_trial"]),
    )


def _listed(name: str, values: tuple[float, ...]) -> Iterator[tuple[str, float]]:
    return ((f"{name}.{number}", value) for number, value in enumerate(values))


def _named(prefix: str, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    return ((f"{prefix}.{name}", value) for name, value in values.items())


def _list(own: Mapping[str, float], name: str) -> tuple[float, ...]:
    values: list[float] = []
    while (key := f"{name}.{len(values)}") in own:
        values.append(own[key])
    return tuple(values)


def _below(own: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {name.removeprefix(prefix): value for name, value in own.items() if name.startswith(prefix)}


def _counts(own: Mapping[str, float], prefix: str) -> dict[str, int]:
    return {name: int(value) for name, value in _below(own, prefix).items()}
