"""The edge between two operators."""

from __future__ import annotations

import msgspec


class Edge(msgspec.Struct, frozen=True, order=True):
    """The stream from one operator to one of the operators that read it.

    >>> Edge("split", "count")
    Edge(producer='split', consumer='count')
    """

    producer: str
    consumer: str
