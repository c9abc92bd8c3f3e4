"""A row function whose calls run at the same time, applied to the Arrow batches of one task."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from penstock.dataflow.code_location import written_at
from penstock.dataflow.concurrent_calls import DEAD_LETTER, is_async
from penstock.dataflow.function_errors import UserFunctionError, user_function_error
from penstock.dataflow.operators import RowFunction
from penstock.engines.spark.calls.call_sums import CallSums
from penstock.engines.spark.calls.call_threads import CallThreads
from penstock.engines.spark.calls.clients import Client, worker_clients
from penstock.engines.spark.calls.dispatcher import AbandonedCallsError, CallAnswer, Dispatcher
from penstock.engines.spark.calls.event_loop import Coroutines
from penstock.engines.spark.calls.outcome import ROWS_ARRIVED, Caller
from penstock.engines.spark.calls.planned_threads import planned_threads
from penstock.engines.spark.calls.row_input import RowInput
from penstock.engines.spark.storage.column_names import ArrowFunction
from penstock.engines.spark.storage.row_conversion import batch_from_dicts, several_rows

_ROWS_PER_OUTPUT = 10_000
Record = Callable[[float, CallSums], None]  # (busy seconds, sums) of a task


def over_concurrent_rows(
    name: str,
    function: RowFunction,
    result_schema: pa.Schema,
    output_schema: pa.Schema,
    *,
    client_key: str,
    run: Path | None = None,
    record: Record | None = None,
) -> ArrowFunction:
    """Return a function of Arrow batches that calls a row function for several rows at the same time.

    output_schema: `result_schema`, with the column of dead letters if they are declared.
    client_key: unique to this start of the query, so that a client is never used by other code than that which made it.
    run: the directory whose plan determines the number of threads; None: the declared number.
    """
    calls, fn = function.calls, function.fn
    assert calls is not None
    if calls.client is None and not is_async(fn):
        client_key = ""

    def over(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not client_key:
            yield from over_with(None, batches)
            return
        try:
            with worker_clients().use(client_key, calls.client, is_async=is_async(fn)) as client:
                yield from over_with(client, batches)
        except (UserFunctionError, GeneratorExit):
            raise
        except Exception as error:
            if calls.client is None:
                raise
            raise user_function_error(f"the client of operator '{name}'", calls.client, error) from error

    def over_with(client: Client | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        caller = _caller(function, client)
        context = TaskContext.get()
        threads = planned_threads(run, name, calls.threads, 0 if context is None else context.partitionId())
        dispatcher = Dispatcher(caller, calls, threads, lambda row: repr([row[key] for key in calls.keys]))
        busy_s, resumed_s = 0.0, time.perf_counter()
        answers: list[CallAnswer] = []
        source = RowInput(batches, arrived=lambda: caller.outcomes.put(ROWS_ARRIVED))
        try:
            for answer in dispatcher.answers(source):
                if answer.error is not None and not calls.dead_letters:
                    raise _failed(name, fn, answer) from answer.error
                answers.append(answer)
                if len(answers) >= _ROWS_PER_OUTPUT:
                    output = _output(name, function, answers, result_schema, output_schema)
                    answers = []
                    paused_s = time.perf_counter()
                    busy_s += paused_s - resumed_s
                    yield from output  # calls in flight continue
                    resumed_s = time.perf_counter()
                    last_s = dispatcher.in_flight_until_s()
                    busy_s += (resumed_s if last_s is None else max(last_s, paused_s)) - paused_s
            output = _output(name, function, answers, result_schema, output_schema)
            busy_s += time.perf_counter() - resumed_s - source.waited_s
            dispatcher.sums.abandoned = caller.abandoned
            if record is not None:
                record(busy_s, dispatcher.sums)
            yield from output
        except AbandonedCallsError as error:
            raise user_function_error(f"operator '{name}'", fn, error) from error
        finally:
            source.close()
            caller.close()

    return over


def _caller(function: RowFunction, client: Client | None) -> Caller:
    arguments = () if function.calls is None or function.calls.client is None or client is None else (client.value,)
    if client is not None and client.events is not None:
        return Coroutines(function.fn, client.events, arguments)
    return CallThreads(function.fn, arguments)


def _failed(name: str, fn: Callable[..., Any], answer: CallAnswer) -> UserFunctionError:
    assert answer.error is not None
    attempts = f" ({answer.attempts} attempts)" if answer.attempts > 1 else ""
    return user_function_error(f"operator '{name}'{attempts}", fn, answer.error, row=answer.row, line=answer.line)


def _output(
    name: str, function: RowFunction, answers: list[CallAnswer], result_schema: pa.Schema, output_schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Return the results as a batch, and the dead letters as another one."""
    made: list[dict[str, Any]] = []
    failed: list[CallAnswer] = []
    producer = f"the function of '{name}'{written_at(function.fn)}"
    for answer in answers:
        if answer.error is not None:
            failed.append(answer)
        elif isinstance(answer.result, dict):
            made.append(answer.result)
        elif answer.result is not None:
            made.extend(several_rows(answer.result, producer))
    results = batch_from_dicts(made, result_schema, producer)
    missing = [pa.nulls(results.num_rows, field.type) for field in list(output_schema)[len(result_schema) :]]
    yield pa.RecordBatch.from_arrays([*results.columns, *missing], schema=output_schema)
    if failed:
        letters = [_dead_letter(name, function.fn, answer) for answer in failed]
        columns = [pa.nulls(len(letters), field.type) for field in result_schema]
        columns.append(pa.array(letters, output_schema.field(DEAD_LETTER).type))
        yield pa.RecordBatch.from_arrays(columns, schema=output_schema)


def _dead_letter(name: str, fn: Callable[..., Any], answer: CallAnswer) -> dict[str, Any]:
    assert answer.error is not None
    explained = user_function_error("call", fn, answer.error, line=answer.line)
    return {
        "operator": name,
        "row": json.dumps(answer.row, default=str),
        "error": str(explained).removeprefix("call failed").removeprefix(" ").removeprefix(": "),
        "attempts": answer.attempts,
    }
