"""Stream: the output of an operator. The next operator is declared on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.ddl import Struct
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.operators import Watermark
from penstock.dataflow.sinks import Sink

if TYPE_CHECKING:
    from penstock.dataflow.dataflow import Dataflow


class Stream:
    """The output of an operator. Its methods declare the next operator.

    All methods raise `DataflowError` if the declaration is not allowed. `Dataflow` has the same methods for operators
    with several inputs.
    """

    def __init__(
        self, flow: Dataflow, name: str, columns: tuple[str, ...] | None = None, schema: str | None = None
    ) -> None:
        self.flow = flow
        self.name = name
        self.columns = columns
        self.schema = schema  # only of a feedback stream
        self._dead_letters: Stream | None = None

    def __repr__(self) -> str:
        return f"<stream '{self.name}' of dataflow '{self.flow.name}'>"

    @property
    def dead_letters(self) -> Stream:
        """The rows that failed in the operator of this stream, which is declared with `dead_letters=True`.

        Its columns are operator, row (the input row as JSON), error and attempts.

        Raises:
            DataflowError: The operator has no dead letters.
        """
        if self._dead_letters is None:
            raise DataflowError(f"'{self.name}' has no dead letters; declare it with rows(..., dead_letters=True).")
        return self._dead_letters

    def stateless(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        fields: Iterable[str] | None = None,
        columns: Iterable[str] | None = None,
        selectivity: float | None = None,
    ) -> Stream:
        """Declare an operator that processes each row independently of all others.

        Args:
            name: Name of the operator.
            fn: Function from DataFrame to DataFrame without aggregations, joins of streams or other state.
            fields: Columns that the operator receives, if they are not known from its input. They decide whether it
                can be replicated together with a keyed operator.
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.
        """
        return self.flow.stateless(name, fn, inputs=[self], fields=fields, columns=columns, selectivity=selectivity)

    def rows(
        self,
        name: str,
        fn: Callable[..., Any],
        schema: str | Struct,
        *,
        fields: Iterable[str] | None = None,
        selectivity: float | None = None,
        threads: int | None = None,
        timeout_s: float | None = None,
        ordered: bool | str = True,
        keys: Sequence[str] | None = None,
        retries: int = 0,
        backoff_s: float = 0.1,
        client: Callable[[], Any] | None = None,
        dead_letters: bool = False,
    ) -> Stream:
        """Declare an operator that calls a Python function for each row.

        Args:
            name: Name of the operator.
            fn: Function of one row, a dict. It returns a dict, an iterable of dicts, or None to drop the row. Each dict
                must contain exactly the columns of the schema, with None for a missing value.
            schema: Columns of the output, as DDL text such as "user string, n bigint" or as a StructType.
            fields: Columns that the operator receives, if they are not known from its input.
            selectivity: Expected rows out per row in, used until it has been measured.
            threads: Calls in flight at the same time in each replica. The function then runs in threads, or as a
                coroutine if it is declared with `async def`. A plan can change the number. Without it, rows are
                processed one after the other.
            timeout_s: Time after which an attempt is given up and counts as failed.
            ordered: True keeps the order of all rows within a replica, "key" that of rows with equal `keys`, whose
                calls never overlap, and False none.
            keys: Columns of the input that determine the order, with ordered="key".
            retries: Attempts after a failed one.
            backoff_s: Pause before the first retry. It doubles with each further one.
            client: Function without arguments that creates a client. Each worker creates one, passes it to `fn` as the
                second argument, and closes it (`close` or `aclose`).
            dead_letters: Rows that fail go to the stream `dead_letters` of the result instead of failing the batch.

        Returns:
            The stream of its output.
        """
        return self.flow.rows(
            name,
            fn,
            schema=schema,
            inputs=[self],
            fields=fields,
            selectivity=selectivity,
            threads=threads,
            timeout_s=timeout_s,
            ordered=ordered,
            keys=keys,
            retries=retries,
            backoff_s=backoff_s,
            client=client,
            dead_letters=dead_letters,
        )

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
        """Declare an operator whose state is partitioned by key: rows with equal keys are processed by one replica.

        Args:
            name: Name of the operator.
            fn: Function from DataFrame to DataFrame with one stateful operation, grouped by the keys.
            keys: Columns that partition the state.
            output_mode: "append" (each result once, when it is final), "update" (every change of a result) or
                "complete" (the whole result in every batch, for a sink that replaces the previous one). The default
                is "append" if a watermark is declared upstream, else "update".
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.
        """
        return self.flow.keyed(
            name,
            fn,
            keys=keys,
            inputs=[self],
            output_mode=output_mode,
            columns=columns,
            selectivity=selectivity,
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
        """Declare an operator with one state for all rows. It has one replica and a query of its own.

        Args:
            name: Name of the operator.
            fn: Function from DataFrame to DataFrame with one stateful operation.
            output_mode: "append", "update" or "complete", as for `keyed`.
            columns: Columns that the operator produces.
            selectivity: Expected rows out per row in, used until it has been measured.

        Returns:
            The stream of its output.
        """
        return self.flow.global_state(
            name, fn, inputs=[self], output_mode=output_mode, columns=columns, selectivity=selectivity
        )

    @checked_types(DataflowError)
    def watermark(self, column: str, delay: str) -> Stream:
        """Declare event time on this stream, as `DataFrame.withWatermark` does. Every later cut preserves it.

        Args:
            column: Column that holds the event time.
            delay: How far a row may lie behind the latest event time, such as "10 minutes". Later rows are dropped.

        Returns:
            This stream.
        """
        self.flow._set_watermark(self.name, Watermark(column=column, delay=delay))
        return self

    def feed(self, loop: Stream) -> None:
        """Close a loop: send the rows of this stream to the operators that read the feedback stream `loop`."""
        self.flow._close_loop(loop, self.name)

    def sink(self, name: str, sink: Sink) -> None:
        """Declare where the rows of this stream are written.

        Args:
            name: Name of the sink.
            sink: `penstock.parquet(...)`, `kafka(...)`, `memory()`, `noop()` or `foreach_batch(...)`.
        """
        self.flow.sink(name, sink, inputs=[self])
