"""`penstock broker`: a local Kafka broker on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.parameters import KAFKA_OPTION, texts_by_name

if TYPE_CHECKING:
    from penstock.brokers.broker import BrokerRecord

_AT = click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/broker"),
    show_default=True,
    help="Directory of the broker, with its topics and log.",
)
BOOTSTRAP_SERVERS = click.option(
    "--bootstrap-servers",
    help="Kafka bootstrap servers, such as localhost:9092.  [default: the broker in runs/broker]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """A Kafka broker on loopback, on free ports. Maven downloads it once; it needs Java 17 or newer.

    \b
    Example:
      penstock broker start
      penstock broker topic counts --partitions 4
      penstock broker stop
    """


@command.command()
@_AT
@_JSON
def start(at: Path, as_json: bool) -> None:
    """Start the broker. It runs until it is stopped.

    \b
    Example:
      penstock broker start --at runs/broker
    """
    from rich.console import Console

    from penstock.api.kafka_broker import start_broker

    with Console(stderr=True).status("Starting the broker ..."):
        running = start_broker(at)
    _print(at, running, as_json=as_json)


@command.command()
@_AT
@_JSON
def status(at: Path, as_json: bool) -> None:
    """Print whether the broker runs, and its address. Exit with code 1 if it does not run.

    \b
    Example:
      penstock broker status --json
    """
    from penstock.api.kafka_broker import broker_status

    running = broker_status(at)
    _print(at, running, as_json=as_json)
    if running is None:
        raise SystemExit(1)


@command.command()
@_AT
@click.option("--delete-topics", is_flag=True, help="Delete the topics of the broker.")
@_JSON
def stop(at: Path, delete_topics: bool, as_json: bool) -> None:
    """Stop the broker. Its topics are kept unless --delete-topics is given.

    \b
    Example:
      penstock broker stop --delete-topics
    """
    from penstock.api.kafka_broker import stop_broker

    stopped = stop_broker(at, delete_topics=delete_topics)
    if as_json:
        _print(at, None, as_json=True)
    elif stopped is None:
        click.echo(f"No broker is running in '{at}'.")
    else:
        click.echo(f"Stopped the broker at {stopped.bootstrap_servers}.")


@command.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(min=1), default=4, show_default=True, help="Partitions of a new topic."
)
@BOOTSTRAP_SERVERS
@KAFKA_OPTION
@_JSON
def topic(
    name: str, partitions: int, bootstrap_servers: str | None, kafka_options: tuple[str, ...], as_json: bool
) -> None:
    """Create the topic NAME. An existing topic is not changed.

    \b
    Example:
      penstock broker topic counts --partitions 8
      penstock broker topic counts --bootstrap-servers localhost:9092
    """
    import msgspec

    from penstock.api.kafka_broker import create_topic

    options = texts_by_name(kafka_options, "--kafka-option")
    created = create_topic(name, partitions=partitions, bootstrap_servers=bootstrap_servers, options=options)
    if as_json:
        click.echo(msgspec.json.encode(created).decode())
    else:
        click.echo(f"Topic '{name}' at '{created.bootstrap_servers}' has {created.partitions} partitions.")


@command.command()
@_JSON
def connector(as_json: bool) -> None:
    """Print the jars of Spark's Kafka connector, for queries written by hand. Maven downloads them once.

    If Spark can resolve the connector itself, use --conf spark.jars.packages=... instead.

    \b
    Example:
      penstock run by_hand.py --conf spark.jars=$(penstock broker connector)
    """
    import json

    from penstock.api.kafka_broker import connector_jars

    jars = [str(path) for path in connector_jars()]
    click.echo(json.dumps(jars) if as_json else ",".join(jars))


def _print(at: Path, running: BrokerRecord | None, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(msgspec.json.encode(running).decode())
    elif running is None:
        click.echo(f"No broker is running in '{at}'.")
    else:
        click.echo(f"A broker is running in '{at}' at {running.bootstrap_servers} (process {running.pid}).")
