"""Whether a dataflow is still the one that a run was begun with: what of it may change over a resumption, and what not.

Checkpoints depend on operators, streams and keys, their offsets on what the sources are, and the output belongs in one
place. Functions may change, and so may rates.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from penstock.dataflow import Dataflow, PlanError
from penstock.dataflow.kafka import Kafka
from penstock.dataflow.sinks import ForeachBatch, Memory, Noop, Parquet, Sink
from penstock.dataflow.sources import Files, Generate, Replay, Source, SparkSource
from penstock.engines.spark.run_directory.committed import Committed, Endpoint
from penstock.engines.spark.sources.contract import StreamSource

_NOWHERE = "kept nowhere"
_WORDS = {
    Files: "files as they appear",
    Generate: "generated rows at a rate",
    SparkSource: "a streaming DataFrame of your own",
    ForeachBatch: "a function of batches",
    Memory: _NOWHERE,  # of the run's own process: nothing of it outlives that
    Noop: _NOWHERE,
}


def check_same_dataflow(found: Committed, flow: Dataflow, run: Path) -> None:
    if found.plan.dataflow != flow.name:
        raise PlanError(
            f"'{run}' holds a run of dataflow '{found.plan.dataflow}', not of '{flow.name}'; give another directory"
        )
    if found.shape != shape_of(flow):
        raise PlanError(
            f"dataflow '{flow.name}' has other operators, streams or keys than when the run in '{run}' was begun; "
            "restore it, or begin a new run in another directory"
        )
    for name, end in ends_of(flow).items():
        before = found.endpoints.get(name, end)
        if before.description != end.description:
            raise PlanError(
                f"'{name}' is {end.description}, and was {before.description} when the run in '{run}' was begun; "
                "declare it as it was, or begin a new run in another directory"
            )


def shape_of(flow: Dataflow) -> str:
    """A fingerprint of operators, streams and keys: what a checkpoint depends on, and functions may not."""
    parts = [
        f"{one.name}:{one.kind}:{','.join(one.inputs)}:{','.join(one.keys)}:{one.output_mode or ''}"
        for one in flow.operators
    ]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def ends_of(flow: Dataflow) -> dict[str, Endpoint]:
    """Its sources and sinks, as they are declared."""
    declared = {one.name: one.source or one.sink for one in flow.operators}
    return {
        name: Endpoint(
            description=_what(end),
            rows_per_s=getattr(end, "rows_per_s", None),
            glob=str(Path(end.glob).absolute()) if isinstance(end, Files) else None,
        )
        for name, end in declared.items()
        if end is not None
    }


def take_up(found: Committed, flow: Dataflow, sources: dict[str, StreamSource]) -> list[str]:
    """What is declared anew and may be, and says so. A rate that was set while the run ran stays until then."""
    said = []
    for name, end in ends_of(flow).items():
        before = found.endpoints.get(name, end)
        if end.rows_per_s is not None and end.rows_per_s != before.rows_per_s:
            sources[name].set_rate(end.rows_per_s)
            said.append(f"source '{name}' goes on at {end.rows_per_s:g} rows/s, as it is declared now")
        if end.glob != before.glob:
            said.append(f"source '{name}' looks for '{end.glob}' now, and looked for '{before.glob}'")
    return said


def _what(end: Source | Sink) -> str:
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
            return _WORDS[type(end)]
