"""The features of an application that do not depend on its plan (Liu et al. 2017, section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from penstock.store import ProfiledOperator

Stream = tuple[str, str]  # producer, consumer
_LOW_QUANTILE = 0.1


def minimal_latency_s(latencies_s: Sequence[float], quantile: float = _LOW_QUANTILE) -> float:
    """Return the minimal processing latency (MinLp): a low quantile, because a single minimum may be an outlier.

    >>> minimal_latency_s([0.005] * 98 + [0.0001, 0.2])
    0.005
    """
    return float(np.quantile(latencies_s, quantile))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeStreamSizes:
    """The size of each stream as a share of all streams together (RSS)."""

    rows: dict[Stream, float]
    bytes: dict[Stream, float] | None  # None if the size of a row of some stream is unknown

    def input_rows(self, operator: str) -> float:
        """Return the share of the rows that an operator receives, over all its input streams."""
        return sum(share for (_, consumer), share in self.rows.items() if consumer == operator)


def relative_stream_sizes(
    rows: Mapping[Stream, float], bytes_per_row: Mapping[str, float] | None = None
) -> RelativeStreamSizes:
    """Return the relative sizes of streams in rows, and in bytes if the bytes per row of each producer are known.

    >>> sizes = relative_stream_sizes({("tweets", "split"): 100, ("split", "count"): 1200}, {"tweets": 600, "split": 5})
    >>> round(sizes.rows["split", "count"], 3), round(sizes.bytes["split", "count"], 3)
    (0.923, 0.091)
    """
    known = bytes_per_row is not None and all(producer in bytes_per_row for producer, _ in rows)
    sizes = None
    if known and bytes_per_row is not None:
        sizes = _shares({(producer, to): count * bytes_per_row[producer] for (producer, to), count in rows.items()})
    return RelativeStreamSizes(rows=_shares(rows), bytes=sizes)


def with_sizes_in_bytes(
    operators: Sequence[ProfiledOperator], bytes_per_row: Mapping[str, float]
) -> tuple[ProfiledOperator, ...]:
    """Return the operators with the relative sizes of their streams in bytes, if the sizes of all rows are known."""
    rows = {(operator.operator, to): share for operator in operators for to, share in operator.streams.items()}
    shares = relative_stream_sizes(rows, bytes_per_row).bytes
    if shares is None:
        return tuple(operators)
    return tuple(
        msgspec.structs.replace(operator, streams_bytes={to: shares[operator.operator, to] for to in operator.streams})
        for operator in operators
    )


def _shares(sizes: Mapping[Stream, float]) -> dict[Stream, float]:
    total = sum(sizes.values())
    return {stream: size / total if total else 0.0 for stream, size in sizes.items()}
