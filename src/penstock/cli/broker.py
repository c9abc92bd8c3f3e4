"""penstock broker: one Kafka broker on loopback, for those who have none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import KAFKA_OPTION

if TYPE_CHECKING:
    from penstock.brokers.cluster import KafkaCluster

AT = Path("runs/broker")

_at = click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=AT,
    show_default=True,
    help="The broker's folder: its topics and its log.",
)
BOOTSTRAP_SERVERS = click.option(
    "--bootstrap-servers", help="Of Kafka, such as localhost:9092.  [of 'penstock broker start' here]"
)
_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def command() -> None:
    """A real Kafka broker on loopback, on free ports. Maven fetches it once; Java 17 or newer runs it.

    \b
    Example:
      penstock broker start
      penstock broker topic counts --partitions 4
      penstock broker stop
    """


def cluster(bootstrap_servers: str | None, options: tuple[str, ...]) -> KafkaCluster:
    """Somebody's, or that of the broker which was started here."""
    from penstock.brokers.broker import status
    from penstock.brokers.cluster import KafkaCluster
    from penstock.cli.parameters import texts_by_name

    if bootstrap_servers is None:
        running = status(AT)
        if running is None:
            raise click.UsageError("give --bootstrap-servers, or start a broker here with 'penstock broker start'")
        bootstrap_servers = running.bootstrap_servers
    return KafkaCluster.of(bootstrap_servers, texts_by_name(options, "--kafka-option"))


@command.command()
@_at
@_json
def start(at: Path, as_json: bool) -> None:
    """Start it; it runs until it is stopped.

    \b
    Example:
      penstock broker start --at runs/broker
    """
    from penstock.brokers.broker import Broker, status

    Broker(at).start().detach()
    _show(at, status(at), as_json)


@command.command("status")
@_at
@_json
def show(at: Path, as_json: bool) -> None:
    """Whether it runs, and where; exit code 1 if it does not.

    \b
    Example:
      penstock broker status --json
    """
    from penstock.brokers.broker import status

    running = status(at)
    _show(at, running, as_json)
    if running is None:
        raise SystemExit(1)


@command.command("stop")
@_at
@click.option("--forget", is_flag=True, help="Delete its topics, too.")
@_json
def end(at: Path, forget: bool, as_json: bool) -> None:
    """Stop it; its topics stay, unless told otherwise.

    \b
    Example:
      penstock broker stop --forget
    """
    from penstock.brokers.broker import stop

    stopped = stop(at, delete_topics=forget)
    if as_json:
        _show(at, None, as_json)
    else:
        click.echo(f"stopped the broker at {stopped.bootstrap_servers}" if stopped else f"no broker runs in '{at}'")


@command.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(min=1), default=4, show_default=True, help="Of the new topic.")
@BOOTSTRAP_SERVERS
@KAFKA_OPTION
@_json
def topic(
    name: str, partitions: int, bootstrap_servers: str | None, kafka_options: tuple[str, ...], as_json: bool
) -> None:
    """Create the topic NAME, here or on any cluster; one that is there stays as it is.

    \b
    Example:
      penstock broker topic counts --partitions 8
      penstock broker topic counts --bootstrap-servers localhost:9092
    """
    import json

    from penstock.brokers.topics import Topic

    at = cluster(bootstrap_servers, kafka_options)
    there = Topic(at, name).create(partitions)
    found = {"topic": name, "bootstrap_servers": at.bootstrap_servers, "partitions": there}
    click.echo(json.dumps(found) if as_json else f"topic '{name}' at '{at.bootstrap_servers}' has {there} partitions")


@command.command()
@_json
def connector(as_json: bool) -> None:
    """The jars of Spark's own Kafka connector, for queries that you write by hand; Maven fetches them once.

    Where Spark can resolve it by itself, --conf spark.jars.packages=... does the same.

    \b
    Example:
      penstock run by_hand.py --conf spark.jars=$(penstock broker connector)
    """
    import json

    from penstock.brokers.maven_jars import connector_jars

    found = [str(path) for path in connector_jars()]
    click.echo(json.dumps(found) if as_json else ",".join(found))


def _show(at: Path, running: object, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(msgspec.json.encode(running).decode())
    elif running is None:
        click.echo(f"no broker runs in '{at}'")
    else:
        click.echo(f"a broker runs in '{at}' at {running.bootstrap_servers} (process {running.pid})")  # type: ignore[attr-defined]
