"""What a plan is expected to do before it runs: rate, latency, use of its slots, and price."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import msgspec

from penstock.dataflow.errors import PenstockError, PlanError
from penstock.dataflow.json_document import JsonDocument
from penstock.plan.plan import Plan


class SlotUse(msgspec.Struct, frozen=True, kw_only=True):
    """CPU and memory in percent of one slot."""

    cpu: float
    memory: float


class PlanPrediction(msgspec.Struct, JsonDocument, frozen=True, kw_only=True):
    """The prediction for a plan at the rate that it was made for."""

    noun: ClassVar[str] = "a prediction"
    json_example: ClassVar[str] = "the one that 'penstock allocate --plan' writes"
    error_type: ClassVar[type[PenstockError]] = PlanError

    plan: Plan
    rows_per_s: float  # of the sources
    sustained_rows_per_s: float
    latency_s: float | None  # mean; None: unknown
    use: dict[str, SlotUse]  # of each slot, by group of executors; "" is the group of all other executors
    price_per_h: float | None

    def is_for(self, plan: Plan) -> bool:
        """Return whether the prediction is for a plan. It may have other slots: those that were available."""
        return plan.replace(slots=self.plan.slots) == self.plan


def prediction_file(plan_file: Path) -> Path:
    """Return the file of the prediction for the plan in a file.

    >>> prediction_file(Path("plans/shop.json")).name
    'shop.prediction.json'
    """
    return plan_file.with_name(f"{plan_file.stem}.prediction.json")
