"""Events in order of time: a binary heap. `one` is the record of SIZES."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.compiling import compiled


@compiled
def push(events: np.ndarray, one: np.ndarray, at: float, what: int) -> None:
    i = one[0].events
    one[0].events = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if events[parent].at <= at:
            break
        events[i].at = events[parent].at
        events[i].what = events[parent].what
        i = parent
    events[i].at = at
    events[i].what = what


@compiled
def pop(events: np.ndarray, one: np.ndarray) -> None:
    """Removes the first; the caller has read it."""
    last = one[0].events - 1
    one[0].events = last
    at, what = events[last].at, events[last].what
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and events[child + 1].at < events[child].at:
            child += 1
        if at <= events[child].at:
            break
        events[i].at = events[child].at
        events[i].what = events[child].what
        i = child
    events[i].at = at
    events[i].what = what
