"""Checks that a run may be resumed with a dataflow, whose definition may have changed since the run began.

A checkpoint is only valid for the same operators, streams and keys. Its offsets are only valid for the same sources.
The output must stay in one place. A resumed run would otherwise lose or duplicate rows, so such changes are refused.
Functions, rates and the pattern of a file source may change. The aggregate functions of an operator with state, and the
columns that they read, may not: the state holds their values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dataflow import Dataflow, PlanError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.sinks import ForeachBatch, Memory, Noop, Parquet, Sink
from penstock.dataflow.sources import Files, Generate, Replay, Source, SparkSource
from penstock.engines.spark.run_directory.committed import Committed, Endpoint
from penstock.engines.spark.sources.contract import StreamSource

_NOT_STORED = "not stored outside the run"
_DESCRIPTIONS = {
    Files: "files as they appear",
    Generate: "generated rows at a rate",
    SparkSource: "a streaming DataFrame of your own",
    ForeachBatch: "a function of batches",
    Memory: _NOT_STORED,
    Noop: _NOT_STORED,
}


def check_same_dataflow(committed: Committed, flow: Dataflow, run: Path) -> None:
    """Raise PlanError if the run in directory `run` cannot be resumed exactly with this dataflow."""
    if committed.plan.dataflow != flow.name:
        raise PlanError(
            f"'{run}' contains a run of dataflow '{committed.plan.dataflow}', not of '{flow.name}'. Give another "
            "directory."
        )
    if committed.shape != shape_of(flow):
        raise PlanError(
            f"Dataflow '{flow.name}' has other operators, streams or keys than at the start of the run in '{run}'. "
            "Restore it, or start a new run in another directory."
        )
    for name, end in endpoints_of(flow).items():
        before = committed.endpoints.get(name, end)
        if before.description != end.description:
            raise PlanError(
                f"'{name}' is {end.description}, but was {before.description} at the start of the run in '{run}'. "
                "Declare it as before, or start a new run in another directory."
            )


def check_same_aggregates(committed: Committed, aggregates: Mapping[str, Sequence[str]], run: Path) -> None:
    """Raise PlanError if the function of an operator aggregates in another way than the state of the run.

    Spark only compares the types of the state, so that it would continue a sum as a maximum.
    """
    for name, found in aggregates.items():
        before = committed.aggregates.get(name, found)
        if tuple(before) != tuple(found):
            raise PlanError(
                f"Operator '{name}' aggregates with {', '.join(found) or 'no function'}, but its state in '{run}' was "
                f"aggregated with {', '.join(before) or 'no function'}. Restore the function, or begin a new run in "
                "another directory."
            )


def shape_of(flow: Dataflow) -> str:
    """Return a fingerprint of the parts of a dataflow on which a checkpoint depends: operators, streams and keys."""
    parts = [
        f"{operator.name}:{operator.kind}:{','.join(operator.inputs)}:{','.join(operator.keys)}"
        f":{operator.output_mode or ''}"
        for operator in flow.operators
    ]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def endpoints_of(flow: Dataflow) -> dict[str, Endpoint]:
    """Return the declarations of the sources and sinks of a dataflow."""
    declared = {operator.name: operator.source or operator.sink for operator in flow.operators}
    return {
        name: Endpoint(
            description=_describe(end),
            rows_per_s=getattr(end, "rows_per_s", None),
            glob=str(Path(end.glob).absolute()) if isinstance(end, Files) else None,
        )
        for name, end in declared.items()
        if end is not None
    }


def apply_new_declarations(committed: Committed, flow: Dataflow, sources: dict[str, StreamSource]) -> list[str]:
    """Apply rates that were declared differently since the run was last started; return a message for each change.

    A rate that was set while the run was running stays in force unless its declaration has changed.
    """
    messages = []
    for name, end in endpoints_of(flow).items():
        before = committed.endpoints.get(name, end)
        if end.rows_per_s is not None and end.rows_per_s != before.rows_per_s:
            sources[name].set_rate(end.rows_per_s)
            messages.append(f"Source '{name}' continues at {end.rows_per_s:g} rows/s, as it is declared now.")
        if end.glob != before.glob:
            messages.append(f"Source '{name}' now reads '{end.glob}' instead of '{before.glob}'.")
    return messages


def _describe(end: Source | Sink) -> str:
    match end:
        case Replay(glob=glob, schema=schema, rows_per_s=None):
            return f"a backlog of '{glob}' ({schema})"
        case Replay(glob=glob, schema=schema):
            return f"a replay of '{glob}' ({schema})"
        case Generate(rows_per_s=None):
            return "a backlog of generated rows"
        case Kafka(topic=topic):
            return f"Kafka topic '{topic}'"
        case Parquet(path=path):
            return f"parquet files in '{path}'"
        case _:
            return _DESCRIPTIONS[type(end)]
