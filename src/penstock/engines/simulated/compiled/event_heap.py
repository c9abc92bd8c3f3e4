"""A binary heap of events, ordered by time. `status` is a record whose field `events` holds the size of the heap."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.compiled.compiler import compiled
from penstock.engines.simulated.compiled.records import record

EVENT = record(at_s=float, subject=np.int64)  # each mode defines the meaning of `subject`


@compiled
def push(events: np.ndarray, status: np.ndarray, at_s: float, subject: int) -> None:
    """Add an event."""
    i = status[0].events
    status[0].events = i + 1
    while i > 0:
        parent = (i - 1) >> 1
        if events[parent].at_s <= at_s:
            break
        events[i].at_s = events[parent].at_s
        events[i].subject = events[parent].subject
        i = parent
    events[i].at_s = at_s
    events[i].subject = subject


@compiled
def pop(events: np.ndarray, status: np.ndarray) -> None:
    """Remove the first event, `events[0]`; read it before."""
    last = status[0].events - 1
    status[0].events = last
    at_s, subject = events[last].at_s, events[last].subject
    i = 0
    while True:
        child = 2 * i + 1
        if child >= last:
            break
        if child + 1 < last and events[child + 1].at_s < events[child].at_s:
            child += 1
        if at_s <= events[child].at_s:
            break
        events[i].at_s = events[child].at_s
        events[i].subject = events[child].subject
        i = child
    events[i].at_s = at_s
    events[i].subject = subject
