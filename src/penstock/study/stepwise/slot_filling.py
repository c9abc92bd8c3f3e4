"""The tasks that use all slots best, according to the times that trials have measured (not in the paper).

Adding tasks by ratio passes over better plans. Given 8 slots and three equal operators, 9 tasks leave seven
slots with one task and one slot with two, and 12 tasks are worse, but 24 tasks use all slots equally. Moreover, a task
that waits needs no core, which shows only when tasks share slots. The times of the rows in a trial tell both. A model
of shared cores then predicts the throughput of all divisions, and a trial tests the best of them.

On an engine whose stages take turns, a stage with fewer tasks than slots leaves slots idle whenever no other query
needs them. There, a trial tests one task per slot for each operator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.models.core_sharing import SharedCores, speed, stretches
from penstock.study.stepwise.configuration import Round

_MOST_PER_SLOT = 8  # tasks that need the core all the time; twice as many if they wait
_USEFUL = 1.02  # other tasks are worth a trial if they are predicted to reach this multiple
_NEAR = 0.99  # the fewest tasks that are predicted to reach this share of the best prediction are chosen
_FITS = 10  # the core shares of operators on the same slots depend on each other
_STEPS = 30
_NOT_LONGER = 0.05  # smaller differences of times are noise
_CANDIDATES = 200  # numbers of tasks that are compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Tasks that may use the slots better, and why."""

    tasks: dict[str, int]
    rows_per_s: float  # predicted, if there is a prediction; else measured with the present tasks
    reason: str


class Fill(Protocol):
    """Finds the tasks that use the slots best."""

    def shares_slots(self, round_: Round) -> bool:
        """Return whether a round tells enough to find better tasks, so that they are tested immediately."""

    def better(self, rounds: Sequence[Round], present: Round) -> Filling | None:
        """Return tasks that may be better than the present ones, after these rounds; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilling:
    """One task per slot for each operator, on an engine whose stages take turns."""

    slots: int
    free: Collection[str]  # operators that may have other tasks

    def shares_slots(self, round_: Round) -> bool:
        """Return False: these tasks are tested when adding tasks by ratio has come to its end."""
        return False

    def better(self, rounds: Sequence[Round], present: Round) -> Filling | None:
        """Return one task per slot for each operator with fewer tasks; None if there is none."""
        tasks = {
            name: max(count, self.slots) for name, count in present.configuration.tasks.items() if name in self.free
        }
        if all(present.configuration.tasks[name] == count for name, count in tasks.items()):
            return None
        return Filling(
            tasks=tasks,
            rows_per_s=present.mean_rows_per_s,
            reason="stages with fewer tasks than slots leave slots idle while it is their turn",
        )


@dataclass(frozen=True, slots=True)
class _Prediction:
    tasks: dict[str, int]
    rows_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFilling:
    """The assumptions about the operators before the first trial: each one needs a core all the time."""

    cores: SharedCores
    latency_s: float
    fixed: Mapping[str, int]  # tasks of the operators whose number of tasks must not change

    def better(self, rounds: Sequence[Round], present: Round) -> Filling | None:
        """Return the tasks with the highest predicted throughput; None if it is not clearly above that of the present.

        The times come from these rounds.
        """
        best = self.best(rounds)
        now_per_s = fitted(self.cores, rounds).rows_per_s(present.configuration.tasks, self.latency_s)
        if best is None or best.rows_per_s < _USEFUL * now_per_s:
            return None
        reason = f"the measured times predict {best.rows_per_s:,.0f} rows/s with these tasks, which use the slots best"
        return Filling(tasks=best.tasks, rows_per_s=best.rows_per_s, reason=reason)

    def best(self, rounds: Sequence[Round]) -> _Prediction | None:
        """Return the tasks with the highest predicted throughput; None if no operator may have other tasks."""
        cores = fitted(self.cores, rounds)
        free = [name for name in cores.seconds if name not in self.fixed]
        if not free:
            return None
        candidates = [_Prediction(tasks, cores.rows_per_s(tasks, self.latency_s)) for tasks in self._growing(cores)]
        best = max(candidate.rows_per_s for candidate in candidates)
        chosen = next(candidate for candidate in candidates if candidate.rows_per_s >= _NEAR * best)
        return self._improved(cores, chosen, free)

    def shares_slots(self, round_: Round) -> bool:
        """Return whether most tasks share their slot with another one."""
        return _shares_slots(round_, self.cores)

    def _growing(self, cores: SharedCores) -> list[dict[str, int]]:
        """Return divisions of more and more tasks: each task goes to the slowest operator that may have more."""
        tasks = {name: self.fixed.get(name, 1) for name in cores.inputs}
        most = 2 * _MOST_PER_SLOT * cores.slots
        result = [tasks]
        while True:
            total = sum(tasks[name] for name in cores.seconds)
            on_cores = sum(tasks[name] * cores.core_shares[name] for name in cores.seconds)
            slowest = next((name for name in cores.slowest(tasks) if name not in self.fixed), None)
            if slowest is None or total >= most or on_cores >= _MOST_PER_SLOT * cores.slots:
                return result
            tasks = tasks | {slowest: tasks[slowest] + max(1, total // _CANDIDATES)}
            result.append(tasks)

    def _improved(self, cores: SharedCores, start: _Prediction, free: Sequence[str]) -> _Prediction:
        """Move or add single tasks for the slowest operator as long as this is predicted to help."""
        best = start
        for _ in range(_STEPS):
            slowest = next((name for name in cores.slowest(best.tasks) if name in free), None)
            if slowest is None:
                return best
            more = best.tasks | {slowest: best.tasks[slowest] + 1}
            changed = [more]
            for name in free:
                changed.append(best.tasks | {name: best.tasks[name] + 1})
                if best.tasks[name] > 1:
                    changed.append(best.tasks | {name: best.tasks[name] - 1})
                    changed.append(more | {name: more[name] - 1})
            rates = [cores.rows_per_s(tasks, self.latency_s) for tasks in changed]
            if max(rates) <= best.rows_per_s * (1.0 + 1e-6):
                return best
            best = _Prediction(changed[rates.index(max(rates))], max(rates))
        return best


def fitted(cores: SharedCores, rounds: Sequence[Round]) -> SharedCores:
    """Return the model with the times and the core shares that follow from the latest trial with shared slots.

    A row takes longer where tasks share slots. If it takes as much longer as the core is slower, its operator needs the
    core all the time; if it does not take longer, the operator waits. It is compared with the latest trial in which no
    task shared its slot, and else with the minimal latency. Without a trial with 1.5 tasks per slot the model remains
    as it is.
    """
    names = [name for name in cores.seconds if name not in cores.constant]
    known = [round_ for round_ in rounds if all(_loaded_s(round_, name, cores) for name in names)]
    shared = [round_ for round_ in known if _shares_slots(round_, cores)]
    if not shared or not names:
        return cores
    alone = [round_ for round_ in known if _tasks(round_, cores) <= cores.slots]
    round_ = shared[-1]
    tasks = {name: round_.configuration.tasks[name] for name in cores.seconds}
    longer = {}
    for name in names:
        alone_s = _loaded_s(alone[-1], name, cores) if alone else cores.seconds[name]
        factor = _loaded_s(round_, name, cores) / alone_s
        longer[name] = factor if factor > 1.0 + _NOT_LONGER else 1.0
    core_shares = dict(cores.core_shares) | _mean_core_shares(longer, tasks, cores.slots)
    for _ in range(_FITS):
        stretched = stretches(tasks, core_shares, cores.slots)
        for name in names:
            share = _core_share(longer[name], stretched[name], core_shares[name])
            core_shares[name] = (core_shares[name] + share) / 2.0
    stretched = stretches(tasks, core_shares, cores.slots)
    seconds = {
        name: _loaded_s(round_, name, cores) * speed(core_shares[name], stretched[name]) / tasks[name] for name in names
    }
    return replace(cores, seconds=dict(cores.seconds) | seconds, core_shares=core_shares)


def _mean_core_shares(longer: Mapping[str, float], tasks: Mapping[str, int], slots: int) -> dict[str, float]:
    """Return the core shares as if all slots were shared in the same way.

    Work on a core takes y times as long, so a row of an operator with the core share c takes 1 - c + c y times as long,
    which is `longer`. Its task uses c / longer of a core, and all cores are used: the sum over all tasks is the number
    of slots. Hence y - 1 = sum(1 - 1 / longer) / slots. If no row takes longer, the cores are not used completely. Then
    equal shares are assumed that use half of them.
    """
    stretch = sum(tasks[name] * (1.0 - 1.0 / factor) for name, factor in longer.items()) / slots
    if stretch < _NOT_LONGER:
        return dict.fromkeys(longer, min(1.0, slots / sum(tasks.values()) / 2.0))
    return {name: min(1.0, (factor - 1.0) / stretch) for name, factor in longer.items()}


def _tasks(round_: Round, cores: SharedCores) -> int:
    return sum(round_.configuration.tasks[name] for name in cores.seconds)


def _shares_slots(round_: Round, cores: SharedCores) -> bool:
    return 2 * _tasks(round_, cores) >= 3 * cores.slots


def _loaded_s(round_: Round, name: str, cores: SharedCores) -> float:
    """Return the time of an operator per row of the sources in a trial; 0 if it is unknown."""
    measured = round_.operators.get(name)
    return (measured.processing_s or 0.0) * cores.rows[name] if measured is not None else 0.0


def _core_share(longer: float, stretched: Sequence[float], assumed: float) -> float:
    """Return the core share with which rows take `longer` on average in tasks with these stretches."""
    if max(stretched) < 1.0 + _NOT_LONGER:
        return assumed if longer == 1.0 else 1.0

    def mean(core_share: float) -> float:
        return len(stretched) / speed(core_share, stretched)

    if longer >= mean(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if mean(middle) < longer else (low, middle)
    return low
