"""How to reach a Kafka cluster: its servers and the client's options. Secrets are named, never held.

An option whose value is `env:NAME` or `file:PATH` is looked up when a client is made, in the process that makes it. So
what is pickled, logged, stored or shown has the name of the secret and not the secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.kafka import checked_options


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    bootstrap_servers: str
    options: tuple[tuple[str, str], ...] = ()  # of librdkafka, such as security.protocol

    def __post_init__(self) -> None:
        if find_spec("confluent_kafka") is None:
            raise PenstockError("Kafka's client is not installed; install it with: pip install 'penstock[kafka]'")

    @staticmethod
    def of(bootstrap_servers: str, options: Mapping[str, str] | None = None) -> KafkaCluster:
        return KafkaCluster(bootstrap_servers=bootstrap_servers, options=checked_options(options or {}))

    def client(self, kind: Callable[[dict[str, Any]], Any], **config: Any) -> Any:
        """A client of confluent-kafka, or one clear error where it does not take the options."""
        from confluent_kafka import KafkaException

        try:
            return kind(self.config(**config))
        except KafkaException as error:
            raise PenstockError(
                f"Kafka's client refuses the options for '{self.bootstrap_servers}': {error.args[0].str()}; mend them"
            ) from None

    def config(self, **more: Any) -> dict[str, Any]:
        """Options of the user win: those that must not are refused where they are given."""
        given = {name: _looked_up(name, value) for name, value in self.options}
        quiet = {"log_level": 2, "error_cb": _ignore}  # it tries again by itself; what cannot be mended is raised
        return quiet | more | given | {"bootstrap.servers": self.bootstrap_servers}

    def id(self, timeout_s: float) -> str | None:
        """The cluster's own name for itself; None where no broker answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            found: str | None = self.client(AdminClient).list_topics(timeout=timeout_s).cluster_id
        except KafkaException:
            return None
        return found


def permanent(error: Any) -> bool:
    """Whether trying again is in vain: the client is at its end, or what is asked for is refused."""
    return bool(error.fatal()) or refused(error)


def refused(error: Any) -> bool:
    """Whether another client would fare no better."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,  # longer than the cluster allows
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,  # such as one without a key in a topic that is compacted
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    )


def leaderless(error: Any) -> bool:
    """Whether a partition is new, or its broker has just come back or was out of breath: it passes in a moment."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
    )


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
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PenstockError(
            f"Kafka option '{option}' is taken from the file '{name}', which cannot be read ({why})"
        ) from None


def _ignore(error: Any) -> None:
    pass
