"""A Kafka topic, to read from or to write to: declared here, given life by an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.dataflow.errors import DataflowError

FORMATS = {"text": "value string", "json": None, "bytes": "key binary, value binary"}
STARTS = ("earliest", "latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """Of the options, secrets are names of where they are found; see `penstock.brokers.cluster`."""

    topic: str
    bootstrap_servers: str
    format: str
    columns: str | None  # DDL; None where only a sink can use it
    start: str
    dead_letter: str | None
    key: str | None
    options: tuple[tuple[str, str], ...]
    silent: bool = False  # no dead letter is written, as for measuring

    @property
    def schema(self) -> str:
        if self.columns is None:
            raise DataflowError(
                f"topic '{self.topic}' is read as json, which needs a schema, such as schema='user string, n int'"
            )
        return self.columns


def kafka(
    topic: str,
    *,
    bootstrap_servers: str,
    format: str = "text",
    schema: str | None = None,
    start: str = "earliest",
    dead_letter: str | None = None,
    key: str | None = None,
    options: Mapping[str, str] | None = None,
) -> Kafka:
    """A topic as a source or as a sink, exactly once either way.

    `format` is `text` (one column, a string a record), `json` (one object a record, as Spark writes it) or `bytes`
    (key and value as they are). A source starts at the `earliest` record or behind the `latest`; a record that does not
    fit the schema ends the run, unless `dead_letter` names a topic to put it in. A sink writes each row as one record,
    keyed by the column `key`, in transactions: read it with `isolation.level=read_committed`. `options` go to the
    client as they are (`security.protocol`, `sasl.username`, ...); secrets among them are given as `env:NAME` or
    `file:PATH`.
    """
    for name, value in (("topic", topic), ("bootstrap_servers", bootstrap_servers)):
        if not isinstance(value, str) or not value:
            raise DataflowError(
                f"kafka {name}={value!r}: give a name, such as kafka('lines', bootstrap_servers='localhost:9092')"
            )
    if format not in FORMATS:
        raise DataflowError(f"kafka format={format!r}: choose one of {', '.join(FORMATS)}")
    fixed = FORMATS[format]
    if fixed is not None and schema not in (None, fixed):
        raise DataflowError(f"kafka schema={schema!r}: records in format {format!r} have the columns {fixed!r}")
    if start not in STARTS:
        raise DataflowError(f"kafka start={start!r}: choose one of {', '.join(STARTS)}")
    if dead_letter == topic:
        raise DataflowError(f"kafka dead_letter={dead_letter!r} is the topic itself; give another one")
    return Kafka(
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        format=format,
        columns=fixed or schema,
        start=start,
        dead_letter=dead_letter,
        key=key,
        options=checked_options(options or {}),
    )


# What the client calls its secrets; whoever writes one into a dataflow has it in a file that others read.
_SECRETS = ("password", "secret", "key.pem", "passphrase", "keystore.key", "oauthbearer.config", "jaas")

# What no record lost and none doubled rests on, and what the run's own transactions are known by.
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
    """
    >>> checked_options({"sasl.password": "hunter2"})
    Traceback (most recent call last):
        ...
    penstock.dataflow.errors.DataflowError: Kafka option 'sasl.password' is a secret and is given as it is; give \
'env:NAME' or 'file:PATH', where it is looked up
    """
    for name, value in options.items():
        if not isinstance(value, str):
            raise DataflowError(f"Kafka option '{name}' is of type {type(value).__name__}; options are strings")
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise DataflowError(f"Kafka option '{name}' is what bootstrap_servers=... gives; leave it out")
        if name in _OWNED:
            raise DataflowError(
                f"Kafka option '{name}' is Penstock's own: that each record counts once rests on it; leave it out"
            )
        if any(word in name for word in _SECRETS) and not value.startswith(("env:", "file:")):
            raise DataflowError(
                f"Kafka option '{name}' is a secret and is given as it is; give 'env:NAME' or 'file:PATH', where it is "
                "looked up"
            )
    if "sasl.username" in options and not {"sasl.mechanism", "sasl.mechanisms"} & options.keys():
        # The client's default is Kerberos, which has no user name, and which it is built without.
        raise DataflowError(
            "Kafka option 'sasl.username' is given without 'sasl.mechanisms'; say which, such as PLAIN or SCRAM-SHA-256"
        )
    return tuple(sorted((name, _anywhere(name, value)) for name, value in options.items()))


def _anywhere(name: str, value: str) -> str:
    """The path of a secret or a certificate from wherever it is read: executors work in a folder of their own."""
    if value.startswith("file:"):
        return f"file:{Path(value.removeprefix('file:')).absolute()}"
    return str(Path(value).absolute()) if name.endswith(".location") and Path(value).exists() else value
