"""Keep the sources ahead of the pipeline: raise the rate of paced sources until rows always wait."""

from __future__ import annotations

from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import RunnableEngine
from penstock.measure.window import Window
from penstock.study.mst.throughput import mix, waiting

FIRST_RATE = 100.0  # rows/s
_AHEAD_WINDOWS = 3.0  # windows of work that must wait; otherwise the source may become the bottleneck
_FASTER = 3.0


class Sources:
    def __init__(self, engine: RunnableEngine, rate: float) -> None:
        self._engine = engine
        self._parts = mix(engine.flow)
        self.rate = rate  # total of all paced sources
        names = set(self._parts)
        self._set()
        self.rated = set(self._parts)
        self.ending = names - self.rated  # preloaded sources, which have no rate

    def stay_ahead(self, taken_per_s: float | None, window: Window, window_s: float) -> None:
        taken_per_s = 0.0 if taken_per_s is None else taken_per_s
        waits = waiting(self._engine.flow, window)
        if any(waits[name] <= _AHEAD_WINDOWS * window_s * taken_per_s * part for name, part in self._parts.items()):
            self.rate = max(self.rate, taken_per_s) * _FASTER
            self._set()

    def _set(self) -> None:
        for name, part in list(self._parts.items()):
            try:
                self._engine.set_rate(name, self.rate * part)
            except PenstockError:
                del self._parts[name]
