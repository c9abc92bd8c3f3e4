"""The five tasks of section 4.3 as row functions.

Each task adds its result to the digest of a row, so the output shows which tasks have processed a row in which order.
`blob` and `table` wait for the HTTP service, the others compute or write.
"""

from __future__ import annotations

import json
import math
import xml.sax
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import penstock
from penstock.apps.model_driven.file_batches import FileBatches
from penstock.apps.model_driven.service import ClientFactory, ServiceClient
from penstock.apps.model_driven.service_process import ServiceLimits, blob, record
from penstock.apps.seeded_random import random_bits
from penstock.dataflow import Stream

SCHEMA = "id bigint, message string, digest bigint"
DOCUMENTS = 64  # different XML strings in memory
ITEMS = 20  # elements with a number in each of them
BLOBS = 100
RECORDS = 1_000_000
VIETE_ITERATIONS = 15
_SCALE = 1e6  # six digits of pi are compared
_SEED = 0x6D6F64656C
_PRIME = (1 << 61) - 1
_LIMITS = ServiceLimits()

Row = dict[str, Any]


class Task(StrEnum):
    PARSE = "parse"
    PI = "pi"
    WRITE = "write"
    BLOB = "blob"
    TABLE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The cost of the tasks, and what the service delivers."""

    xml_documents: int = 1  # parsed per row
    pi_repeats: int = 1  # evaluations of the series per row
    string_bytes: int = 100  # length of a string of `write`
    batch_rows: int = 10_000  # strings per file
    folder: str | None = None  # for the files; None: a temporary folder per worker, which keeps the latest files
    threads: int = 16  # for `blob` and `table`; the other tasks have one
    timeout_s: float = 5.0  # for a call of the service
    retries: int = 5
    backoff_s: float = 0.05
    latency_ms: float = _LIMITS.latency_ms
    bandwidth_bytes_per_s: float | None = None
    requests_per_s: float | None = None
    blob_bytes: int = _LIMITS.blob_bytes
    record_columns: int = _LIMITS.record_columns

    @property
    def limits(self) -> ServiceLimits:
        return ServiceLimits(**{field.name: getattr(self, field.name) for field in fields(ServiceLimits)})


def task_options(given: Mapping[str, Any]) -> TaskOptions:
    """Return options from keyword arguments.

    >>> task_options({"latency_ms": 5.0}).latency_ms
    5.0
    """
    known = [field.name for field in fields(TaskOptions)]
    unknown = sorted(given.keys() - set(known))
    if unknown:
        raise penstock.DataflowError(f"{', '.join(unknown)} is not an option of this dataflow; use {', '.join(known)}.")
    return TaskOptions(**given)


def with_task(stream: Stream, name: str, task: Task, options: TaskOptions, others: list[Stream]) -> Stream:
    """Add an operator with this task that reads `stream` and `others`."""
    arguments: dict[str, Any] = {"threads": 1, "ordered": False}
    if task in (Task.BLOB, Task.TABLE):
        arguments |= {
            "threads": options.threads,
            "timeout_s": options.timeout_s,
            "retries": options.retries,
            "backoff_s": options.backoff_s,
            "client": ClientFactory(options.limits),
        }
    if task is Task.WRITE:
        arguments["client"] = _new_batches(options)
    return stream.flow.rows(
        name, _functions(options)[task], schema=SCHEMA, inputs=[stream, *others], selectivity=1.0, **arguments
    )


def digested(digest: int, result: int) -> int:
    """Return the digest of a row after a task; it depends on the order of the tasks.

    >>> digested(digested(0, 1), 2) == digested(digested(0, 2), 1)
    False
    """
    return (digest * 1_000_003 + result) % _PRIME


# ---- parse


def document(number: int) -> str:
    """Return an XML string with numbers and texts.

    >>> document(1)[:46]
    '<reading meter="1"><value unit="Wh">1</value><'
    """
    items = (
        f'<value unit="Wh">{number * item % 1_000}</value><note>item {item}</note>' for item in range(1, ITEMS + 1)
    )
    return f'<reading meter="{number}">{"".join(items)}</reading>'


_TEXTS = [document(number).encode() for number in range(DOCUMENTS)]


class _Values(xml.sax.ContentHandler):
    """Adds the numbers in elements `value`."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0
        self._text: list[str] | None = None

    def startElement(self, name: str, attrs: object) -> None:  # noqa: N802
        self._text = [] if name == "value" else None

    def characters(self, content: str) -> None:
        if self._text is not None:
            self._text.append(content)

    def endElement(self, name: str) -> None:  # noqa: N802
        if self._text is not None:
            self.total += int("".join(self._text))
        self._text = None


def parsed(id_: int, documents: int) -> int:
    """Parse some XML strings, and return the sum of their numbers.

    >>> parsed(1, 1) == sum(range(1, ITEMS + 1))
    True
    """
    handler = _Values()
    for number in range(documents):
        xml.sax.parseString(_TEXTS[(id_ + number) % DOCUMENTS], handler)
    return handler.total


def expected_sum(id_: int, documents: int) -> int:
    return sum((id_ + number) % DOCUMENTS * item % 1_000 for number in range(documents) for item in range(1, ITEMS + 1))


# ---- pi


def viete(iterations: int = VIETE_ITERATIONS) -> float:
    """Return pi by Viete's product of nested square roots.

    >>> round(viete(), 6), round(viete(1), 6)
    (3.141593, 2.828427)
    """
    root, product = 0.0, 1.0
    for _ in range(iterations):
        root = math.sqrt(2.0 + root)
        product *= root / 2.0
    return 2.0 / product


def expected_pi(iterations: int = VIETE_ITERATIONS) -> float:
    """Return the closed form of Viete's product, a multiple of a sine."""
    sides = 2.0 ** (iterations + 1)
    return sides * math.sin(math.pi / sides)


# ---- all


def _functions(options: TaskOptions) -> dict[Task, Callable[..., Row]]:
    """Return the row functions. They name their options, so each of them is measured again if its own ones change."""
    documents, repeats, string_bytes = options.xml_documents, options.pi_repeats, options.string_bytes

    def parse(row: Row) -> Row:
        return _with(row, parsed(row["id"], documents))

    def compute_pi(row: Row) -> Row:
        for _ in range(repeats):
            value = viete()
        return _with(row, value * _SCALE)

    def write(row: Row, batches: FileBatches) -> Row:
        batches.add(f"{row['id']} {row['message']}".ljust(string_bytes - 1, ".")[: string_bytes - 1])
        return _with(row, string_bytes)

    def download(row: Row, client: ServiceClient) -> Row:
        return _with(row, zlib.crc32(client.get(f"/blob/{blob_of(row['id'])}")))

    def look_up(row: Row, client: ServiceClient) -> Row:
        record = json.loads(client.get(f"/record/{record_of(row['id'])}"))
        return _with(row, sum(record.values()))

    return {
        Task.PARSE: parse,
        Task.PI: compute_pi,
        Task.WRITE: write,
        Task.BLOB: download,
        Task.TABLE: look_up,
    }


def expected(task: Task, id_: int, options: TaskOptions) -> int:
    """Return the result of a task for a row, without parsing, iterating, or the service."""
    match task:
        case Task.PARSE:
            return expected_sum(id_, options.xml_documents)
        case Task.PI:
            return round(expected_pi() * _SCALE)
        case Task.WRITE:
            return options.string_bytes
        case Task.BLOB:
            return zlib.crc32(blob(str(blob_of(id_)), options.blob_bytes))
        case Task.TABLE:
            return sum(record(record_of(id_), options.record_columns).values())


def blob_of(id_: int) -> int:
    return random_bits(id_, _SEED) % BLOBS


def record_of(id_: int) -> int:
    return random_bits(id_, _SEED + 1) % RECORDS


def _with(row: Row, result: float) -> Row:
    return {**row, "digest": digested(row["digest"], round(result))}


def _new_batches(options: TaskOptions) -> Callable[[], FileBatches]:
    folder, batch_rows = options.folder, options.batch_rows

    def new() -> FileBatches:
        return FileBatches(folder, batch_rows)

    return new
