"""`penstock.start_broker`, `stop_broker`, `create_topic`, `load_topic`: a local Kafka broker and rows for topics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.api.input_files import read_text
from penstock.api.policy_options import OptionError
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.local_paths import local_directory

if TYPE_CHECKING:
    from penstock.brokers.broker import BrokerRecord
    from penstock.brokers.cluster import KafkaCluster
    from penstock.brokers.load_generator import LoadProgress, LoadResult, LoadSchedule

BROKER_DIRECTORY = Path("runs/broker")


class KafkaTopic(msgspec.Struct, frozen=True, kw_only=True):
    """An existing topic."""

    topic: str
    bootstrap_servers: str
    partitions: int


def start_broker(at: str | Path = BROKER_DIRECTORY) -> BrokerRecord:
    """Start a Kafka broker on loopback, on free ports. It runs until it is stopped.

    Maven downloads it once; it needs Java 17 or newer.

    Args:
        at: Directory of the broker's data and log.

    Raises:
        PenstockError: The broker cannot be downloaded or does not start.
    """
    from penstock.brokers.broker import Broker

    Broker(local_directory(at)).start().detach()
    status = broker_status(at)
    if status is None:
        raise PenstockError(f"The broker in '{at}' stopped right after its start; see its log in that directory.")
    return status


def broker_status(at: str | Path = BROKER_DIRECTORY) -> BrokerRecord | None:
    """Return the address and process of the broker in `at`, or None if none is running."""
    from penstock.brokers.broker import status

    return status(local_directory(at))


def stop_broker(at: str | Path = BROKER_DIRECTORY, *, delete_topics: bool = False) -> BrokerRecord | None:
    """Stop the broker and return what was running, or None. Topics are kept unless `delete_topics` is set."""
    from penstock.brokers.broker import stop

    return stop(local_directory(at), delete_topics=delete_topics)


def create_topic(
    name: str,
    *,
    partitions: int = 4,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
) -> KafkaTopic:
    """Create a topic, or return the existing one unchanged.

    Args:
        name: Name of the topic.
        partitions: Number of partitions of a new topic.
        bootstrap_servers: Addresses of brokers; default: the broker in `runs/broker`.
        options: Options of the Kafka client.
    """
    from penstock.brokers.topics import Topic

    cluster = _cluster(bootstrap_servers, options)
    created = Topic(cluster, name).create(partitions)
    return KafkaTopic(topic=name, bootstrap_servers=cluster.bootstrap_servers, partitions=created)


def connector_jars() -> list[Path]:
    """Return the jars of Spark's own Kafka connector, for queries written by hand. Maven downloads them once."""
    from penstock.brokers import maven_jars

    return maven_jars.connector_jars()


def load_topic(
    topic: str,
    row: Callable[[int], Any] | str,
    *,
    rate: float | None = None,
    trace: str | Path | None = None,
    backlog: int | None = None,
    peak: float | None = None,
    max_rows: int | None = None,
    seconds: float | None = None,
    partitions: int | None = None,
    bootstrap_servers: str | None = None,
    options: Mapping[str, str] | None = None,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_message: Callable[[str], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> LoadResult:
    """Append rows to a topic at a rate, along a trace, or as a backlog, and return the rows counted by the broker.

    All rows are confirmed by the broker before the function returns. Give one of `rate`, `trace` and `backlog`.

    Args:
        topic: Name of the topic.
        row: Function of the row number, or "FILE[:FUNCTION]". Text is sent as it is, other values as JSON.
        rate: Rows per second.
        trace: CSV file (time_s,rate) with the rate over time.
        backlog: Number of rows to append as fast as possible.
        peak: Scale the trace so that its highest rate is this many rows/s.
        max_rows: Number of rows after which a rate ends.
        seconds: Time after which a rate or a trace ends.
        partitions: Create the topic with this number of partitions if it is missing. Without it, the topic must exist.
        bootstrap_servers: Addresses of brokers; default: the broker in `runs/broker`.
        options: Options of the Kafka client.
        on_progress: Called about once per second.
        on_message: Called with one sentence if the topic already exists with another number of partitions.
        is_stopped: Returns whether to end early.

    Raises:
        OptionError: The arguments do not fit together.
        PenstockError: The broker cannot be reached.
    """
    from penstock.brokers.load_generator import load
    from penstock.brokers.topics import Topic
    from penstock.dataflow.load import load_function

    schedule = _schedule(rate, trace, backlog, peak=peak, max_rows=max_rows)
    if seconds is not None and backlog is not None:
        raise OptionError("A time limit applies to a rate or a trace; a backlog ends when its rows are appended.")
    if partitions is not None:
        created = create_topic(topic, partitions=partitions, bootstrap_servers=bootstrap_servers, options=options)
        if created.partitions != partitions and on_message is not None:
            on_message(f"Topic '{topic}' already exists with {created.partitions} partitions.")
    return load(
        Topic(_cluster(bootstrap_servers, options), topic),
        load_function(row, "generator") if isinstance(row, str) else row,
        schedule,
        limit_s=math.inf if seconds is None else seconds,
        on_progress=on_progress,
        is_stopped=is_stopped,
    )


def _schedule(
    rate: float | None, trace: str | Path | None, backlog: int | None, *, peak: float | None, max_rows: int | None
) -> LoadSchedule:
    from penstock.brokers.load_generator import Backlog, ConstantRate, RateTrace
    from penstock.planning.trace import parse_trace

    if sum(given is not None for given in (rate, trace, backlog)) != 1:
        raise OptionError("Give exactly one of a rate, a trace and a backlog.")
    if peak is not None and trace is None:
        raise OptionError("A peak scales a trace; give a trace too.")
    if max_rows is not None and rate is None:
        raise OptionError("A maximum number of rows applies to a rate; give a rate too.")
    if rate is not None:
        return ConstantRate(rate, max_rows)
    if backlog is not None:
        return Backlog(backlog)
    load = parse_trace(read_text(Path(str(trace))), source=str(trace))
    load = load if peak is None else load.scaled_to(peak)
    return RateTrace(load.rates, load.interval_s)


def _cluster(bootstrap_servers: str | None, options: Mapping[str, str] | None) -> KafkaCluster:
    from penstock.brokers.cluster import KafkaCluster

    if bootstrap_servers is None:
        running = broker_status()
        if running is None:
            raise PenstockError(
                f"No broker is running in '{BROKER_DIRECTORY}'; give the bootstrap servers, or start a broker with "
                "'penstock broker start'."
            )
        bootstrap_servers = running.bootstrap_servers
    return KafkaCluster.of(bootstrap_servers, dict(options or {}))
