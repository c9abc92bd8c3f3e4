"""Stream: the output of an operator, on which the next one is declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.dataflow.operators import Watermark
from penstock.dataflow.sinks import Sink

if TYPE_CHECKING:
    from penstock.dataflow.dataflow import Dataflow


class Stream:
    """The output of an operator: what the next one is declared on."""

    def __init__(
        self, flow: Dataflow, name: str, columns: tuple[str, ...] | None = None, schema: str | None = None
    ) -> None:
        self.flow = flow
        self.name = name
        self.columns = columns
        self.schema = schema  # only of a feedback stream

    def __repr__(self) -> str:
        return f"<stream '{self.name}' of dataflow '{self.flow.name}'>"

    def stateless(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        fields: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        return self.flow.stateless(name, fn, inputs=[self], fields=fields, columns=columns, selectivity=selectivity)

    def rows(
        self,
        name: str,
        fn: Callable[[dict[str, Any]], Any],
        *,
        schema: str,
        fields: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        return self.flow.rows(name, fn, schema=schema, inputs=[self], fields=fields, selectivity=selectivity)

    def keyed(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        keys: Sequence[str],
        output_mode: str | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        return self.flow.keyed(
            name, fn, keys=keys, inputs=[self], output_mode=output_mode, columns=columns, selectivity=selectivity
        )

    def global_state(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        output_mode: str | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        return self.flow.global_state(
            name, fn, inputs=[self], output_mode=output_mode, columns=columns, selectivity=selectivity
        )

    def watermark(self, column: str, delay: str) -> Stream:
        """Declares event time on this stream, so that it survives a cut anywhere downstream."""
        self.flow._set_watermark(self.name, Watermark(column=column, delay=delay))
        return self

    def feed(self, loop: Stream) -> None:
        """Closes a loop: this stream's rows come back where the feedback stream is an input."""
        self.flow._close(loop, self.name)

    def sink(self, name: str, sink: Sink) -> None:
        self.flow.sink(name, sink, inputs=[self])
