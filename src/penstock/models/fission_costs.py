"""The two parameters of an engine in the model of pipelined fission (`models/pipelined_fission.py`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.dataflow.errors import PenstockError


@dataclass(frozen=True, slots=True, kw_only=True)
class FissionCosts:
    """The costs of passing a row to another thread. They are calibrated once per engine."""

    thread_s: float = 0.0  # time to pass a row to another thread
    replica_s: float = 0.0  # additional time if the rows are distributed over 2 replicas; twice as much for 4

    def __post_init__(self) -> None:
        for name in ("thread_s", "replica_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise PenstockError(
                    f"{name} is {getattr(self, name)}; it must be a finite number of seconds, 0 or more."
                )

    def per_row_s(self, replicas: int) -> float:
        return self.thread_s + self.replica_s * math.log2(replicas)
