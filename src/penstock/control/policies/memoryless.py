"""What policies have in common that look at the demand of the moment and remember nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.control.decisions import Decision, Hold
from penstock.control.demand import Demand, demand_of
from penstock.control.situation import Memory, Situation


class Memoryless(ABC):
    __slots__ = ()

    def decide(self, situation: Situation, memory: Memory) -> tuple[Decision, Memory]:
        demand = demand_of(situation)
        return demand if isinstance(demand, Hold) else self.meet(demand, situation), memory

    @abstractmethod
    def meet(self, demand: Demand, situation: Situation) -> Decision:
        """What to do about a demand that is known; the situation has a window then."""
