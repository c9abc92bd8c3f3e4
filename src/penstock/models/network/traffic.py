"""The traffic equations: the arrival rate and the visits per external row of each station. Exact.

    lambda = lambda_ext + P^T lambda,    P[i, j] = rows sent to j for each row served at i (its gain, any number >= 0)

P describes splits, joins, loops and gains above 1. A loop that returns one or more rows per row has no steady state and
raises an UnstableError that names the loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from penstock.models.network.visits import Visits, offspring_covariance, sibling_pairs
from penstock.models.queueing.errors import ModelError, UnstableError, distinguishable, not_negative, positive

_MAX_CYCLES = 1000  # there may be exponentially many simple cycles, and one unstable loop suffices for the message


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStream:
    """A stream that carries `gain` rows to `target` per row of `source`. A source of None is external."""

    source: str | None
    target: str
    gain: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The solution of the traffic equations. Arrays are in the order of `names`."""

    names: tuple[str, ...]
    external_per_s: float
    entry: np.ndarray  # rows that enter at each station per external row
    gains: np.ndarray  # P
    visits: np.ndarray  # lambda / external rate

    @property
    def arrival_per_s(self) -> dict[str, float]:
        return {name: float(v) * self.external_per_s for name, v in zip(self.names, self.visits, strict=True)}

    def visit_law(self) -> Visits:
        """Return the mean, covariance and siblings of the visits of one external row.

        Cov = Z^T (S_0 + sum_i visits_i S_i) Z with Z = (I - P)^-1. S_i is the covariance of the rows that one row sends
        from i, and S_0 that of its entry. This is the total progeny of a branching process, exact for gains as
        interpreted by `offspring_covariance`.
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
    """Solve the traffic equations; raise a ModelError for unknown stations and an UnstableError for growing loops.

    >>> streams = [TrafficStream(source=None, target="split"), TrafficStream(source="split", target="count", gain=3.0)]
    >>> solve_traffic(["split", "count"], streams, external_per_s=8.0).arrival_per_s
    {'split': 8.0, 'count': 24.0}
    """
    positive("the external rate (rows/s)", external_per_s)
    index = {name: i for i, name in enumerate(names)}
    entry, gains = np.zeros(len(names)), np.zeros((len(names), len(names)))
    for stream in streams:
        source = "the external source" if stream.source is None else f"'{stream.source}'"
        for name in (stream.source, stream.target):
            if name is not None and name not in index:
                raise ModelError(
                    f"The stream from {source} to '{stream.target}' names the station '{name}', which does not exist. "
                    f"The stations are {', '.join(names)}."
                )
        not_negative(f"the gain of the stream from {source} to '{stream.target}'", stream.gain)
        if stream.source is None:
            entry[index[stream.target]] += stream.gain
        else:
            gains[index[stream.source], index[stream.target]] += stream.gain
    if not entry.any():
        raise ModelError("No external stream is given. Add one with 'from': null and a gain above 0.")
    _refuse_growing_loops(tuple(names), gains)
    visits = np.linalg.solve(np.eye(len(names)) - gains.T, entry)
    # Rounding may give a station without arrivals a tiny negative value.
    visits = np.where(np.abs(visits) < 1e-12 * np.abs(visits).max(), 0.0, visits)
    return Traffic(names=tuple(names), external_per_s=external_per_s, entry=entry, gains=gains, visits=visits)


def _refuse_growing_loops(names: tuple[str, ...], gains: np.ndarray) -> None:
    """Raise an UnstableError unless the spectral radius of P is below 1, which is checked per connected component."""
    graph = nx.from_numpy_array(gains, create_using=nx.DiGraph)
    for part in nx.strongly_connected_components(graph):
        nodes = sorted(part)
        radius = float(np.abs(np.linalg.eigvals(gains[np.ix_(nodes, nodes)])).max())
        if radius < 1.0 - 1e-12:
            continue
        cycles = itertools.islice(nx.simple_cycles(graph.subgraph(nodes)), _MAX_CYCLES)

        def product(cycle: list[int]) -> float:
            return math.prod(float(gains[a, b]) for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))

        worst = max(cycles, key=product)
        start = worst.index(min(worst))
        path = " -> ".join(names[i] for i in [*worst[start:], *worst[:start], worst[start]])
        if product(worst) >= 1.0 - 1e-12:
            raise UnstableError(
                f"The loop {path} has a gain of {distinguishable(product(worst), 1.0)[0]}. "
                "It must be below 1. Lower a gain in the loop."
            )
        raise UnstableError(
            f"The loops through {', '.join(names[i] for i in nodes)} (one is {path}) together multiply rows by "
            f"{radius:g} per round. The factor must be below 1. Lower a gain in these loops."
        )
