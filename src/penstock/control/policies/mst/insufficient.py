"""Numbers of executors that were insufficient, each with the input rate at that time.

An executor count is insufficient if its rows piled up, or if the latency was above the target for some turns. It is
not used again for this rate or a higher one, so that a constant load does not add and release an executor in turn. The
rate rises slowly, so that the count is tried again after some hours, in case the program has become faster.
"""

from __future__ import annotations

from penstock.control.policies.mst.load import InputLoad
from penstock.control.policies.mst.margin import MARGIN
from penstock.control.policy import Memory, Situation, latency_s

_PREFIX = "mst.insufficient."
_LATE_TURNS = "mst.late_turns"  # consecutive turns with a latency above the target
_LATE_FOR = 3  # turns; one noisy window is not enough
_NEAR = 0.1  # relative decrease of the rate from which the count is tried again
_FORGETS = 1e-4  # relative increase of the remembered rate per turn


def with_insufficient(
    memory: Memory,
    situation: Situation,
    load: InputLoad,
    *,
    executors: int,
    margin_before: float,
    target_s: float | None,
    quantile: float | None,
) -> dict[str, float]:
    """Return the memory with the current count if it is insufficient."""
    updated = {key: value * (1.0 + _FORGETS) if key.startswith(_PREFIX) else value for key, value in memory.items()}
    late = _is_late(situation, load, target_s, quantile)
    turns = memory.get(_LATE_TURNS, 0.0) + 1.0 if late else 0.0
    if memory.get(MARGIN, 1.0) > margin_before or turns >= _LATE_FOR:
        key = f"{_PREFIX}{executors}"
        updated[key] = min(updated.get(key, load.arriving), load.arriving)
    return {**updated, _LATE_TURNS: turns}


def is_insufficient(memory: Memory, executors: int, rows_per_s: float) -> bool:
    """Return whether this count, or a larger one, was insufficient for such a rate.

    >>> memory = {"mst.insufficient.3": 100.0}
    >>> [is_insufficient(memory, count, rate) for count, rate in ((2, 100.0), (3, 95.0), (3, 80.0), (4, 100.0))]
    [True, True, False, False]
    """
    return any(
        key.startswith(_PREFIX)
        and int(key.removeprefix(_PREFIX)) >= executors
        and rows_per_s >= (1.0 - _NEAR) * float(rate)
        for key, rate in memory.items()
    )


def _is_late(situation: Situation, load: InputLoad, target_s: float | None, quantile: float | None) -> bool:
    """Return whether the latency is above the target although no backlog of an earlier plan explains it."""
    if target_s is None or situation.window is None or load.backlog > load.ordinary:
        return False
    measured_s = latency_s(situation.window.latency, quantile)
    return measured_s is not None and measured_s > target_s
