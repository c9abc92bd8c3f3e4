"""Connections to a Kafka cluster: bootstrap servers, client options, and the classification of client errors.

An option `env:NAME` or `file:PATH` is resolved when a client is created, in the process that creates it. Pickled,
logged, stored and displayed values therefore contain only the name of a secret.
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
    """The address of a Kafka cluster and the client options for it."""

    bootstrap_servers: str
    options: tuple[tuple[str, str], ...] = ()  # librdkafka options, such as security.protocol

    def __post_init__(self) -> None:
        if find_spec("confluent_kafka") is None:
            raise PenstockError("The Kafka client is not installed; install it with: pip install 'penstock[kafka]'")

    @staticmethod
    def of(bootstrap_servers: str, options: Mapping[str, str] | None = None) -> KafkaCluster:
        """Return a cluster with checked options.

        Raises:
            DataflowError: An option is reserved or contains a secret.
            PenstockError: The Kafka client is not installed.
        """
        return KafkaCluster(bootstrap_servers=bootstrap_servers, options=checked_options(options or {}))

    def client(self, kind: Callable[[dict[str, Any]], Any], **config: Any) -> Any:
        """Return a client of confluent-kafka of this class.

        Raises:
            PenstockError: The client does not accept the options, or a secret cannot be read.
        """
        from confluent_kafka import KafkaException

        try:
            return kind(self.config(**config))
        except KafkaException as error:
            raise PenstockError(
                f"The Kafka client refuses the options for '{self.bootstrap_servers}': {error.args[0].str()}; correct "
                "them."
            ) from None

    def config(self, **more: Any) -> dict[str, Any]:
        """Return the configuration of a client. Options of the user override `more`; reserved options are refused."""
        options = {name: _resolved(name, value) for name, value in self.options}
        # The client retries by itself and reports errors that it cannot recover from by raising them.
        quiet = {"log_level": 2, "error_cb": _ignore}
        return quiet | more | options | {"bootstrap.servers": self.bootstrap_servers}

    def id(self, timeout_s: float) -> str | None:
        """Return the id of the cluster, or None if no broker answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            cluster_id: str | None = self.client(AdminClient).list_topics(timeout=timeout_s).cluster_id
        except KafkaException:
            return None
        return cluster_id


def is_permanent(error: Any) -> bool:
    """Return whether a retry cannot succeed: the client has failed, or the broker refuses the request."""
    return bool(error.fatal()) or is_refused(error)


def is_refused(error: Any) -> bool:
    """Return whether the broker refuses the request, so that another client would fail too."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,  # the timeout exceeds the limit of the cluster
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.INVALID_RECORD,  # for example without a key in a compacted topic
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
    )


def is_fenced(error: Any) -> bool:
    """Return whether a newer producer with the same transactional id has replaced this one."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def has_no_leader(error: Any) -> bool:
    """Return whether a partition has no leader for a moment, because it is new or its broker has just restarted."""
    from confluent_kafka import KafkaError

    return error.code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError._NOENT,
    )


def _resolved(option: str, value: str) -> str:
    kind, colon, name = value.partition(":")
    if not colon or kind not in ("env", "file"):
        return value
    if kind == "env":
        if name not in os.environ:
            raise PenstockError(
                f"Kafka option '{option}' is taken from the environment, which has no variable '{name}'; set it."
            )
        return os.environ[name]
    try:
        return Path(name).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise PenstockError(
            f"Kafka option '{option}' is taken from the file '{name}', which cannot be read ({reason}); correct the "
            "path."
        ) from None


def _ignore(error: Any) -> None:
    pass
