"""The traffic equations: how often a row that enters the network visits each station. Exact.

    lambda = lambda_ext + P^T lambda,    P[i, j] = rows sent to j for each row served at i (its gain, any number >= 0)

Splits, joins, loops and gains above 1 are all in P. A loop that returns 1 row or more for each row it takes has no
steady state and is refused by name.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from penstock.models.network.visits import Visits, offspring_covariance, sibling_pairs
from penstock.models.queueing.errors import ModelError, UnstableError, not_negative, positive, told_apart

_CYCLES_LOOKED_AT = 1000  # simple cycles may be exponentially many; the name of one bad loop is enough


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStream:
    """`gain` rows for `target` out of each row of `source`; a source of None is the outside."""

    source: str | None
    target: str
    gain: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The solved equations. Arrays follow the order of `names`."""

    names: tuple[str, ...]
    external_per_s: float
    entry: np.ndarray  # rows that enter at each station for each external row
    gains: np.ndarray  # P
    visits: np.ndarray  # lambda / external rate

    @property
    def arrival_per_s(self) -> dict[str, float]:
        return {name: float(v) * self.external_per_s for name, v in zip(self.names, self.visits, strict=True)}

    def visit_law(self) -> Visits:
        """Spread and siblings of the numbers of visits that one external row makes.

        Cov = Z^T (S_0 + sum_i visits_i S_i) Z with Z = (I - P)^-1 and S_i the covariance of the rows that one row of i
        sends out (S_0: of where it enters): total progeny of a branching process, exact for the reading of gains that
        `offspring_covariance` states.
        """
        offspring = offspring_covariance(self.entry)
        siblings = sibling_pairs(self.entry)
        for visits, row in zip(self.visits, self.gains, strict=True):
            if visits and row.any():
                offspring += visits * offspring_covariance(row)
                siblings += visits * sibling_pairs(row)
        total = np.linalg.inv(np.eye(len(self.names)) - self.gains)
        return Visits(mean=self.visits, covariance=np.asarray(total.T @ offspring @ total), siblings=siblings)


def solve_traffic(names: Sequence[str], streams: Sequence[TrafficStream], external_per_s: float) -> Traffic:
    """
    >>> streams = [TrafficStream(source=None, target="split"), TrafficStream(source="split", target="count", gain=3.0)]
    >>> solve_traffic(["split", "count"], streams, external_per_s=8.0).arrival_per_s
    {'split': 8.0, 'count': 24.0}
    """
    positive("the external rate (rows/s)", external_per_s)
    index = {name: i for i, name in enumerate(names)}
    entry, gains = np.zeros(len(names)), np.zeros((len(names), len(names)))
    for stream in streams:
        source = "outside" if stream.source is None else f"'{stream.source}'"
        for name in (stream.source, stream.target):
            if name is not None and name not in index:
                raise ModelError(
                    f"a stream goes from {source} to '{stream.target}' but there is no station '{name}'; "
                    f"the stations are {', '.join(names)}"
                )
        not_negative(f"the gain of the stream from {source} to '{stream.target}'", stream.gain)
        if stream.source is None:
            entry[index[stream.target]] += stream.gain
        else:
            gains[index[stream.source], index[stream.target]] += stream.gain
    if not entry.any():
        raise ModelError("no stream comes from outside; give one with 'from': null and a gain above 0")
    _refuse_growing_loops(tuple(names), gains)
    visits = np.linalg.solve(np.eye(len(names)) - gains.T, entry)
    # Rounding may leave a station that nothing reaches a hair below 0.
    visits = np.where(np.abs(visits) < 1e-12 * np.abs(visits).max(), 0.0, visits)
    return Traffic(names=tuple(names), external_per_s=external_per_s, entry=entry, gains=gains, visits=visits)


def _refuse_growing_loops(names: tuple[str, ...], gains: np.ndarray) -> None:
    """The network settles if and only if the spectral radius of P is below 1, and that goes loop by loop."""
    graph = nx.from_numpy_array(gains, create_using=nx.DiGraph)
    for part in nx.strongly_connected_components(graph):
        nodes = sorted(part)
        radius = float(np.abs(np.linalg.eigvals(gains[np.ix_(nodes, nodes)])).max())
        if radius < 1.0 - 1e-12:
            continue
        cycles = itertools.islice(nx.simple_cycles(graph.subgraph(nodes)), _CYCLES_LOOKED_AT)

        def product(cycle: list[int]) -> float:
            return math.prod(float(gains[a, b]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))

        worst = max(cycles, key=product)
        start = worst.index(min(worst))
        path = " -> ".join(names[i] for i in [*worst[start:], *worst[:start], worst[start]])
        if product(worst) >= 1.0 - 1e-12:
            raise UnstableError(
                f"the loop {path} has a gain of {told_apart(product(worst), 1.0)[0]}, "
                "but a loop needs a gain below 1: lower a gain on it"
            )
        raise UnstableError(
            f"the loops through {', '.join(names[i] for i in nodes)} (one is {path}) together multiply rows by "
            f"{radius:g} a round; they need less than 1: lower a gain on them"
        )
