"""penstock load: rows for a Kafka topic."""

from __future__ import annotations

import math
from pathlib import Path

import click

from penstock.cli.broker import BOOTSTRAP_SERVERS, cluster
from penstock.cli.parameters import ABOVE_0, KAFKA_OPTION


@click.command()
@click.argument("topic")
@BOOTSTRAP_SERVERS
@click.option(
    "--rows", "generator", required=True, metavar="FILE[:FUNCTION]", help="A function of the row's number.  [generator]"
)
@click.option("--rate", type=ABOVE_0, help="Rows a second.")
@click.option("--trace", type=click.Path(path_type=Path), help="CSV: time_s,rate or time,rate.")
@click.option("--peak", type=ABOVE_0, help="Scale the trace to this peak rate.")
@click.option("--backlog", type=click.IntRange(min=1), help="So many rows, as fast as they go.")
@click.option("--most", type=click.IntRange(min=1), help="Stop after so many rows; with --rate.")
@click.option(
    "--seconds",
    type=ABOVE_0,
    help="Stop after so long; with --rate or --trace.",
)
@click.option("--partitions", type=click.IntRange(min=1), help="Create the topic with so many, if it is not there.")
@KAFKA_OPTION
@click.option("--json", "as_json", is_flag=True, help="Only the outcome, as JSON.")
def command(
    topic: str,
    bootstrap_servers: str | None,
    generator: str,
    rate: float | None,
    trace: Path | None,
    peak: float | None,
    backlog: int | None,
    most: int | None,
    seconds: float | None,
    partitions: int | None,
    kafka_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Append rows to TOPIC: at a rate, along a trace, or as a backlog. Text goes as it is, anything else as JSON.

    The end is exact: it waits for the broker to confirm every row, and compares the topic's offsets with the count.
    Ctrl-C and SIGTERM end it as well, exactly.

    \b
    Example:
      penstock load lines --rows penstock.apps.wordcount --rate 5000 --partitions 8
      penstock load lines --bootstrap-servers localhost:9092 --rows my.py:line --trace day.csv --peak 20000
      penstock load lines --bootstrap-servers localhost:9092 --rows my.py:line --backlog 5000000 --partitions 8
    """
    import msgspec
    from rich.console import Console

    from penstock.api.input_files import read_text
    from penstock.brokers.load_generator import Backlog, ConstantRate, LoadProgress, LoadSchedule, RateTrace, load
    from penstock.brokers.topics import Topic
    from penstock.control.signals import StopSignals
    from penstock.dataflow.load import load_function
    from penstock.planning.trace import parse_trace

    if sum(one is not None for one in (rate, trace, backlog)) != 1:
        raise click.UsageError("give one of --rate, --trace and --backlog")
    if (peak is not None and trace is None) or (most is not None and rate is None):
        raise click.UsageError("--peak goes with --trace, and --most with --rate")
    if seconds is not None and backlog is not None:
        raise click.UsageError("--seconds goes with --rate or --trace: a backlog has its rows, however long they take")
    schedule: LoadSchedule
    if rate is not None:
        schedule = ConstantRate(rate, most)
    elif backlog is not None:
        schedule = Backlog(backlog)
    else:
        assert trace is not None
        course = parse_trace(read_text(trace), source=str(trace))
        course = course if peak is None else course.scaled_to(peak)
        schedule = RateTrace(course.rates, course.interval_s)
    target = cluster(bootstrap_servers, kafka_options)
    row = load_function(generator, "generator")
    if partitions is not None:
        there = Topic(target, topic).create(partitions)
        if there != partitions:
            click.echo(f"topic '{topic}' is there already, with {there} partitions", err=True)
    of = f" of {schedule.rows:,}" if schedule.rows is not None else ""
    console = Console(stderr=True)
    with StopSignals() as signals, console.status(f"loading '{topic}' ...") as shown:

        def tell(pace: LoadProgress) -> None:
            behind = f", {pace.due - pace.rows:,} behind" if backlog is None and pace.due > pace.rows else ""
            shown.update(f"{pace.rows:,}{of} rows, {pace.rows_per_s:,.0f} rows/s{behind}, {pace.elapsed_s:.0f} s")

        on_pace = None if as_json else tell
        stopped = lambda: signals.received is not None  # noqa: E731
        most_s = math.inf if seconds is None else seconds
        loaded = load(Topic(target, topic), row, schedule, limit_s=most_s, on_progress=on_pace, is_stopped=stopped)
    if as_json:
        click.echo(msgspec.json.encode(loaded).decode())
    else:
        click.echo(
            f"topic '{topic}' has {loaded.rows:,} rows more, counted by the broker: {loaded.seconds:.1f} s, "
            f"{loaded.rows_per_s:,.0f} rows/s, at worst {loaded.behind_s:.1f} s behind"
        )
