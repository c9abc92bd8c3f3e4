"""How to reach a Kafka cluster: its servers and the client's options. Secrets are named, never held.

An option whose value is `env:NAME` or `file:PATH` is looked up when a client is made, in the process that makes it. So
what is pickled, logged, stored or shown has the name of the secret and not the secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.kafka import checked_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    servers: str
    options: tuple[tuple[str, str], ...] = ()  # of librdkafka, such as security.protocol

    @staticmethod
    def of(servers: str, options: Mapping[str, str] | None = None) -> Cluster:
        return Cluster(servers=servers, options=checked_options(options or {}))

    def config(self, **more: Any) -> dict[str, Any]:
        """For a client of confluent-kafka; options of the user win."""
        given = {name: _looked_up(name, value) for name, value in self.options}
        quiet = {"log_level": 2, "error_cb": _ignore}  # it tries again by itself; what cannot be mended is raised
        return quiet | more | given | {"bootstrap.servers": self.servers}

    def answers(self, timeout_s: float) -> bool:
        """Whether a broker can be reached."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            return bool(AdminClient(self.config()).list_topics(timeout=timeout_s).brokers)
        except KafkaException:
            return False


def _looked_up(option: str, value: str) -> str:
    kind, colon, name = value.partition(":")
    if not colon or kind not in ("env", "file"):
        return value
    if kind == "env":
        if name not in os.environ:
            raise PenstockError(f"Kafka option '{option}' is taken from the environment, which has no '{name}'; set it")
        return os.environ[name]
    try:
        return Path(name).read_text().strip()
    except OSError as error:
        raise PenstockError(
            f"Kafka option '{option}' is taken from the file '{name}', which cannot be read ({error.strerror})"
        ) from None


def _ignore(error: Any) -> None:
    pass
