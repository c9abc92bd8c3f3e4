"""penstock run: run a dataflow in a directory, or resume it there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from penstock.cli.parameters import KAFKA_OPTION, ROUTING, Finite, json_option, texts_by_name
from penstock.cli.policy_parameters import api_parameters, policy_parameters

_EXIT_CODES: dict[str | None, int] = {"SIGINT": 130, "SIGTERM": 143}  # exit codes of commands that a signal ended


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Directory of the run.  [default: runs/<dataflow>]"
)
@click.option("--master", help="Master URL of Spark.  [default: local[2]]")
@click.option("--cluster", type=click.Path(path_type=Path), help="Directory of a 'penstock cluster' to run on.")
@click.option(
    "--conf",
    "confs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Spark configuration property, as in spark-submit. May be repeated.",
)
@click.option("--plan", type=click.Path(path_type=Path), help="JSON file of the plan to start with.")
@ROUTING
@click.option(
    "--window-s",
    type=Finite(min=0.1),
    help="Length of a measurement window in seconds.  [default: 1 with policy organic, else 2]",
)
@click.option(
    "--sample-every",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Time one of this many rows individually (row functions).",
)
@click.option(
    "--channel",
    type=click.Choice(["embedded", "kafka"]),
    default="embedded",
    show_default=True,
    help="Storage of new cuts: the directory of the run, or Kafka topics.",
)
@click.option("--bootstrap-servers", help="Kafka servers for --channel kafka, such as localhost:9092.")
@KAFKA_OPTION
@policy_parameters(mode="recommend")
@click.option(
    "--price",
    "price_per_slot_hour",
    type=Finite(min=0),
    help="Price of one slot for one hour, in any currency; status and report show the cost.",
)
@click.option("--until-idle", is_flag=True, help="Stop when all input is processed.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@json_option("Print one window per line as JSON.")
def command(flow: str, confs: tuple[str, ...], kafka_options: tuple[str, ...], **options: Any) -> None:
    """Run a dataflow. If the directory contains an earlier run of it, resume that run, also after a crash.

    Ctrl-C stops the run cleanly. During the start it ends the start, and the exit code is 130.

    \b
    Example:
      penstock run wordcount.py --at runs/wc --master local[4]
      penstock run wordcount.py:flow --at runs/wc --plan plan.json --until-idle
      penstock run 'penstock.apps.nexmark:q5(rows=100000, rows_per_s=5000)' --at runs/q5
      penstock run wordcount.py --at runs/wc --latency-ms 2000 --max-slots 16 --mode active
      penstock run wordcount.py --cluster runs/cluster --policy mst --executors 1..6 --mode active
      penstock run wordcount.py --at runs/wc --policy stepwise --profile studies/wc --mode active
      penstock run wordcount.py --at runs/wc --channel kafka --bootstrap-servers localhost:9092
    """
    import psutil

    import penstock
    from penstock.api.launch import COMMAND_BEGAN_S
    from penstock.control.signals import StopSignals
    from penstock.report.event_time import event_time_remarks
    from penstock.report.live_table import LiveTable

    with LiveTable(quiet=options.pop("quiet"), as_json=options.pop("as_json")) as table, StopSignals() as signals:
        began = COMMAND_BEGAN_S.set(psutil.Process().create_time())
        try:
            with signals.interrupting():
                run = penstock.run(
                    flow,
                    confs=texts_by_name(confs, "--conf"),
                    kafka_options=texts_by_name(kafka_options, "--kafka-option"),
                    on_window=table.show,
                    on_message=table.say,
                    **api_parameters(options),
                )
        except KeyboardInterrupt:
            table.say(f"Stopped ({signals.received}) during the start; start again with the same command.")
            sys.exit(_EXIT_CODES.get(signals.received, 130))
        finally:
            COMMAND_BEGAN_S.reset(began)
        with run:
            while not run.wait(timeout_s=0.1):
                if signals.received is not None:
                    run.request_stop(signals.received)
        for remark in event_time_remarks(run.status().window):
            table.say(remark)
        table.say(f"Stopped ({run.stop_reason}); resume with: {run.resume_command()}")
