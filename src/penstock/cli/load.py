"""`penstock load`: append rows to a Kafka topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.broker import BOOTSTRAP_SERVERS
from penstock.cli.parameters import ABOVE_0, KAFKA_OPTION, texts_by_name

if TYPE_CHECKING:
    from penstock.brokers.load_generator import LoadProgress


@click.command()
@click.argument("topic")
@BOOTSTRAP_SERVERS
@click.option(
    "--rows",
    "generator",
    required=True,
    metavar="FILE[:FUNCTION]",
    help="Function of the row number that returns a row.  [default FUNCTION: generator]",
)
@click.option("--rate", type=ABOVE_0, help="Rate in rows/s.")
@click.option("--trace", type=click.Path(path_type=Path), help="Rates over time, CSV: time_s,rate or time,rate.")
@click.option("--peak", type=ABOVE_0, help="Scale the trace to this peak rate.")
@click.option("--backlog", type=click.IntRange(min=1), help="Number of rows to append as fast as possible.")
@click.option("--max-rows", type=click.IntRange(min=1), help="Stop after this number of rows (with --rate).")
@click.option("--seconds", type=ABOVE_0, help="Stop after this time (with --rate or --trace).")
@click.option("--partitions", type=click.IntRange(min=1), help="Create the topic with this number of partitions.")
@KAFKA_OPTION
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    topic: str,
    bootstrap_servers: str | None,
    generator: str,
    rate: float | None,
    trace: Path | None,
    peak: float | None,
    backlog: int | None,
    max_rows: int | None,
    seconds: float | None,
    partitions: int | None,
    kafka_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Append rows to TOPIC at a rate, along a trace, or as a backlog. Text is sent as it is, other values as JSON.

    The command ends when the broker has confirmed every row and the offsets of the topic match the count. Ctrl-C and
    SIGTERM end it in the same way.

    \b
    Example:
      penstock load lines --rows penstock.apps.wordcount --rate 5000 --partitions 8
      penstock load lines --bootstrap-servers localhost:9092 --rows my.py:line --trace day.csv --peak 20000
      penstock load lines --bootstrap-servers localhost:9092 --rows my.py:line --backlog 5000000 --partitions 8
    """
    from functools import partial

    import msgspec
    from rich.console import Console

    from penstock.api.kafka_broker import load_topic
    from penstock.control.signals import StopSignals

    with StopSignals() as signals, Console(stderr=True).status(f"Loading '{topic}' ...") as status:

        def show(progress: LoadProgress) -> None:
            late = (
                f", {progress.due - progress.rows:,} behind" if backlog is None and progress.due > progress.rows else ""
            )
            status.update(
                f"{progress.rows:,} rows, {progress.rows_per_s:,.0f} rows/s{late}, {progress.elapsed_s:.0f} s"
            )

        loaded = load_topic(
            topic,
            generator,
            rate=rate,
            trace=trace,
            backlog=backlog,
            peak=peak,
            max_rows=max_rows,
            seconds=seconds,
            bootstrap_servers=bootstrap_servers,
            partitions=partitions,
            options=texts_by_name(kafka_options, "--kafka-option"),
            on_message=partial(click.echo, err=True),
            on_progress=None if as_json else show,
            is_stopped=lambda: signals.received is not None,
        )
    if as_json:
        click.echo(msgspec.json.encode(loaded).decode())
    else:
        click.echo(
            f"Appended {loaded.rows:,} rows to topic '{topic}' (counted by the broker) in {loaded.seconds:.1f} s: "
            f"{loaded.rows_per_s:,.0f} rows/s, at most {loaded.behind_s:.1f} s late."
        )
