"""Replicas that can go on without time passing, to be looked after before the next event."""

from __future__ import annotations

import numpy as np

from penstock.engines.simulated.compiling import compiled
from penstock.engines.simulated.records import BUSY


@compiled
def do_soon(todo: np.ndarray, one: np.ndarray, servers: np.ndarray, server: int) -> None:
    servers[server].state = BUSY
    todo[one[0].todo] = server
    one[0].todo += 1
