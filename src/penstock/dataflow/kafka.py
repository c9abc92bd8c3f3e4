"""Kafka topics: declarations of a topic to read from or to write to. Engines implement them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.dataflow.argument_types import checked_types
from penstock.dataflow.ddl import Struct, ddl
from penstock.dataflow.errors import DataflowError
from penstock.dataflow.existing import Existing, checked_existing

FORMATS = {"text": "value string", "json": None, "bytes": "key binary, value binary"}
STARTS = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A topic. Secrets among the options are references to where they are stored; see `penstock.brokers.cluster`."""

    topic: str
    bootstrap_servers: str
    format: str
    columns: str | None  # DDL schema; None if the topic can only be a sink
    start: str
    dead_letter: str | None
    key: str | None
    options: tuple[tuple[str, str], ...]
    writes_dead_letters: bool = True
    existing: Existing = "error"

    @property
    def schema(self) -> str:
        if self.columns is None:
            raise DataflowError(
                f"Topic '{self.topic}' is read as json, which needs a schema; give one such as schema='user string, n "
                "int'."
            )
        return self.columns


@checked_types(DataflowError)
def kafka(
    topic: str,
    *,
    bootstrap_servers: str,
    format: str = "text",
    schema: str | Struct | None = None,
    start: str = "earliest",
    dead_letter: str | None = None,
    key: str | None = None,
    existing: Existing = "error",
    options: Mapping[str, str] | None = None,
) -> Kafka:
    """Return a topic to use as a source or as a sink, with exactly-once delivery in both cases.

    A sink writes each row as one record, in transactions. Its readers need `isolation.level=read_committed`.

    Args:
        topic: Name of the topic.
        bootstrap_servers: Addresses of brokers, such as "localhost:9092".
        format: "text" (one string column), "json" (one object per record, as Spark writes it) or "bytes" (key and value
            unchanged).
        schema: Columns of a source in format json, as DDL text such as "user string, n int" or as a StructType.
        start: Where a source starts: at the "earliest" record, or after the "latest".
        dead_letter: Topic for records that do not fit the schema. Without it, such a record ends the run.
        key: Column of a sink that becomes the key of the record.
        existing: Treatment of records that a new run finds in the topic of a sink: "error" refuses to start,
            "overwrite" deletes them when the run has started, and "append" keeps them. A source ignores it.
        options: Options of librdkafka, such as `security.protocol` or `sasl.username`. Secrets are given as `env:NAME`
            or `file:PATH`.

    Raises:
        DataflowError: An argument is not allowed, or an option contains a secret or is reserved.
    """
    for name, value in (("topic", topic), ("bootstrap_servers", bootstrap_servers)):
        if not isinstance(value, str) or not value:
            raise DataflowError(
                f"kafka() is given {name}={value!r}; give a name, such as kafka('lines', "
                "bootstrap_servers='localhost:9092')."
            )
    if format not in FORMATS:
        raise DataflowError(f"kafka() is given format={format!r}; choose one of {', '.join(FORMATS)}.")
    fixed = FORMATS[format]
    if fixed is not None and schema not in (None, fixed):
        raise DataflowError(
            f"kafka() is given schema={schema!r}, but records in format {format!r} have the columns {fixed!r}; omit "
            "schema."
        )
    if start not in STARTS:
        raise DataflowError(f"kafka() is given start={start!r}; choose one of {', '.join(STARTS)}.")
    if dead_letter == topic:
        raise DataflowError(
            f"kafka() is given dead_letter={dead_letter!r}, which is the topic itself; give another topic."
        )
    return Kafka(
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        format=format,
        columns=fixed or (None if schema is None else ddl(schema)),
        start=start,
        dead_letter=dead_letter,
        key=key,
        existing=checked_existing("kafka", existing),
        options=checked_options(options or {}),
    )


# Options whose name contains one of these words are secrets, which must not be written into a dataflow file.
_SECRETS = ("password", "secret", "key.pem", "passphrase", "keystore.key", "oauthbearer.config", "jaas")

# Exactly-once delivery depends on these options, so that users cannot change them.
_OWNED = frozenset(
    (
        "acks",
        "auto.commit.enable",
        "auto.offset.reset",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "group.id",
        "isolation.level",
        "message.send.max.retries",
        "request.required.acks",
        "retries",
        "transactional.id",
    )
)


def checked_options(options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the options as sorted pairs with absolute file paths.

    Raises:
        DataflowError: An option is not a string, is reserved, or contains a secret.

    >>> checked_options({"sasl.password": "hunter2"})
    Traceback (most recent call last):
        ...
    penstock.dataflow.errors.DataflowError: Kafka option 'sasl.password' is a secret and must not be written here; \
give 'env:NAME' or 'file:PATH' to say where it is stored.
    """
    for name, value in options.items():
        if not isinstance(value, str):
            raise DataflowError(f"Kafka option '{name}' is of type {type(value).__name__}; give a string.")
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise DataflowError(f"Kafka option '{name}' is set by bootstrap_servers=...; leave it out.")
        if name in _OWNED:
            raise DataflowError(
                f"Kafka option '{name}' is set by Penstock, because exactly-once delivery depends on it; leave it out."
            )
        if any(word in name for word in _SECRETS) and not value.startswith(("env:", "file:")):
            raise DataflowError(
                f"Kafka option '{name}' is a secret and must not be written here; give 'env:NAME' or 'file:PATH' to "
                "say "
                "where it is stored."
            )
    if "sasl.username" in options and not {"sasl.mechanism", "sasl.mechanisms"} & options.keys():
        # The client's default mechanism is Kerberos, which has no user name and is not compiled in.
        raise DataflowError(
            "Kafka option 'sasl.username' is given without 'sasl.mechanisms'; give a mechanism such as PLAIN or "
            "SCRAM-SHA-256."
        )
    return tuple(sorted((name, _absolute(name, value)) for name, value in options.items()))


def _absolute(name: str, value: str) -> str:
    """Return the value with an absolute path if it names a file, because executors have other working directories."""
    if value.startswith("file:"):
        return f"file:{Path(value.removeprefix('file:')).absolute()}"
    return str(Path(value).absolute()) if name.endswith(".location") and Path(value).exists() else value
