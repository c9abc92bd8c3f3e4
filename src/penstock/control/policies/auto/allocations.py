"""Allocations: replica counts of increasing cost, each the best for its number of slots by the model.

Every replica goes to the node whose latency drops most per slot, which is optimal for a sum of convex functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from penstock.control.policies.auto.network import Floats, QueueNetwork

_MOST_STEPS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """A path of replica counts; step i adds one replica to node `order[i]`."""

    network: QueueNetwork
    start: Floats
    order: tuple[int, ...]
    unstable: str | None = None  # a node that no number of replicas makes stable

    def __len__(self) -> int:
        return len(self.order) + 1

    def counts(self, step: int) -> Floats:
        return self.start + np.bincount(self.order[:step], minlength=len(self.start))

    def slots(self, step: int) -> int:
        return self.network.slots(self.counts(step))

    def first(self, fits: Callable[[Floats], bool], *, last: int | None = None) -> int | None:
        """Return the first step whose counts fit, by bisection; None if the step `last` does not fit either."""
        high = len(self) - 1 if last is None else min(last, len(self) - 1)
        if high < 0 or not fits(self.counts(high)):
            return None
        low = -1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(self.counts(middle)) else (middle, high)
        return high

    def within(self, slots: int) -> int:
        """Return the last step that uses at most this number of slots; -1 if even the first one uses more."""
        added = np.cumsum(self.network.width[list(self.order)])
        return int(np.searchsorted(added, slots - self.network.slots(self.start), side="right")) - (
            1 if self.network.slots(self.start) > slots else 0
        )


def allocations(network: QueueNetwork, rate_per_s: float, *, most_slots: int, beyond: bool = False) -> Allocations:
    """Return the allocations for a rate, with at most `most_slots` slots if that many suffice for stability.

    `beyond` continues to twice the slots that stability needs, to find out how many slots a target requires.
    """
    fewest = network.fewest(rate_per_s)
    unstable = None
    if not np.isfinite(fewest).all():
        unstable = network.names[int(np.argmax(~np.isfinite(fewest)))]
        fewest = np.where(np.isfinite(fewest), fewest, np.where(np.isfinite(network.limit), network.limit, 1.0))
    steps = int(min(_MOST_STEPS, max(network.slots(fewest) if beyond else 0, most_slots - network.slots(fewest))))
    if not len(fewest) or steps == 0:
        return Allocations(network=network, start=fewest, order=(), unstable=unstable)
    depth = min(steps, 400)
    counts = fewest[:, None] + np.arange(depth + 1)
    latency = network.node_s(counts, rate_per_s)
    gains = latency[:, :-1] - latency[:, 1:]
    gains = np.where(counts[:, 1:] > network.limit[:, None], -np.inf, gains)
    gains = gains / network.width[:, None]
    gains = np.minimum.accumulate(gains, axis=1)  # a later slot of a node never comes before an earlier one
    flat = np.argsort(-gains, axis=None, kind="stable")[:steps]
    flat = flat[gains.ravel()[flat] > 0.0]
    return Allocations(network=network, start=fewest, order=tuple((flat // depth).tolist()), unstable=unstable)
