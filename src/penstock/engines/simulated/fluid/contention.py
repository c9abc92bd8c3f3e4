"""Bundles that share cores in the fluid simulation: they are slowed down while their work needs more than these."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.engines.simulated.stations import SimulatedStation


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotContention:
    """The use of shared slots by stations, at a rate of one row/s of each station."""

    core_s: np.ndarray  # slot x station: seconds of the core per row
    part: np.ndarray  # slot x station: part of the rows of a station that its replicas on this slot process
    elsewhere: np.ndarray  # by station: part of the rows that replicas on other slots process
    is_routed: np.ndarray  # by station: whether replicas on other slots cannot take over its rows

    def apply(self, served: np.ndarray, step_s: float) -> np.ndarray:
        """Return the rows that stations serve in a step, of those that they would serve alone."""
        speed = 1.0 / np.maximum(1.0, self.core_s @ served / step_s)
        mean = self.elsewhere + speed @ self.part
        lowest = np.where(self.part > 0, speed[:, None], 1.0).min(axis=0)
        return np.asarray(served * np.where(self.is_routed, lowest, mean))


def slot_contention(
    stations: Sequence[SimulatedStation], speed: np.ndarray, suspended_executors: Collection[int]
) -> SlotContention | None:
    """Return the contention of stations with these speeds in rows/s; None if no slot is shared."""
    shared = sorted({slot.pool for station in stations for slot in station.slots if slot.core_share > 0})
    if not shared:
        return None
    index = {slot: number for number, slot in enumerate(shared)}
    core_s, part = np.zeros((len(shared), len(stations))), np.zeros((len(shared), len(stations)))
    for number, station in enumerate(stations):
        servers = [slot for slot in station.slots if slot.executor not in suspended_executors]
        total = sum(1.0 / slot.slowdown for slot in servers)
        shares = (
            np.repeat(np.array(station.key_shares) / station.bundles, station.bundles) if station.is_routed else None
        )
        if speed[number] <= 0 or not servers:
            continue
        service_s = total / speed[number]
        for at, slot in enumerate(station.slots):
            if slot.core_share == 0 or slot.executor in suspended_executors:
                continue
            rows = 1.0 / slot.slowdown / total if shares is None else float(shares[at])
            part[index[slot.pool], number] += rows
            core_s[index[slot.pool], number] += rows * slot.core_share * slot.slowdown * service_s
    return SlotContention(
        core_s=core_s,
        part=part,
        elsewhere=1.0 - part.sum(axis=0),
        is_routed=np.array([station.is_routed for station in stations]),
    )
