"""penstock run: runs a dataflow in a directory, or resumes it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from penstock.cli import policy
from penstock.cli.given import Finite


@click.command()
@click.argument("spec", metavar="FILE[:FLOW]")
@click.option("--at", type=click.Path(path_type=Path, file_okay=False), help="The run's directory.  [runs/<dataflow>]")
@click.option("--master", default="local[2]", show_default=True, help="Spark's master.")
@click.option(
    "--cluster", "cluster_dir", type=click.Path(path_type=Path), help="One of 'penstock cluster start', for a master."
)
@click.option("--conf", "given_confs", multiple=True, metavar="NAME=VALUE", help="Of Spark, as spark-submit takes it.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="A plan in JSON, as 'show --json' has it.")
@click.option("--every", "every_s", type=Finite(min=0.1), default=2.0, show_default=True, help="Seconds a window.")
@click.option(
    "--sample-every",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    help="Of row functions, one row in so many is timed by itself, for the spread of its time.",
)
@click.option(
    "--channel",
    type=click.Choice(["embedded", "kafka"]),
    default="embedded",
    show_default=True,
    help="Where new cuts keep their rows: the run's directory, or Kafka topics.",
)
@click.option("--bootstrap-servers", help="Of Kafka, for --channel kafka, such as localhost:9092.")
@click.option(
    "--kafka-option",
    "kafka_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Of the Kafka client, for --channel kafka; secrets as env:NAME or file:PATH.",
)
@policy.options()
@click.option("--until-idle", is_flag=True, help="Stop when all input is processed.")
@click.option("--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="One window a line, as JSON.")
def command(
    spec: str,
    at: Path | None,
    master: str,
    cluster_dir: Path | None,
    given_confs: tuple[str, ...],
    plan_file: Path | None,
    every_s: float,
    sample_every: int,
    channel: str,
    bootstrap_servers: str | None,
    kafka_options: tuple[str, ...],
    until_idle: bool,
    quiet: bool,
    as_json: bool,
    **asked_for: Any,
) -> None:
    """Run a dataflow; on a directory where it ran before, resume it, also after a crash.

    Ctrl-C stops it cleanly.

    \b
    Example:
      penstock run wordcount.py --at runs/wc --master local[4]
      penstock run wordcount.py:flow --at runs/wc --plan plan.json --until-idle
      penstock run wordcount.py --at runs/wc --policy drs --latency-ms 2000 --mode active
      penstock run wordcount.py --cluster runs/cluster --policy mst --executors 1..6 --mode active
      penstock run wordcount.py --at runs/wc --channel kafka --bootstrap-servers localhost:9092
    """
    import dataclasses
    import os
    import time

    from penstock.cli.given import kafka_cluster, named, read_plan
    from penstock.control.loop import Loop
    from penstock.control.requests import Requests
    from penstock.control.run import Schedule, run
    from penstock.dataflow.errors import PenstockError
    from penstock.dataflow.load import load
    from penstock.dataflow.sources import never_ends
    from penstock.plan import validated
    from penstock.report.live_table import LiveTable
    from penstock.store import RunStart, Store

    confs = named(given_confs, "--conf")
    room = None  # for executors
    if cluster_dir is not None:
        from penstock.engines.spark import cluster

        up = cluster.running(cluster_dir)
        master, confs = up.master, up.confs | confs
        asked_for["slots_each"] = asked_for["slots_each"] or up.record.asked.slots
        room = up.record.asked.workers * max(1, up.record.asked.slots // asked_for["slots_each"])
    asked = policy.Asked(**asked_for)
    asked.check()
    if room is not None and asked.executors is not None and asked.executors[1] > room:
        if not quiet:
            click.echo(
                f"--executors asks for up to {asked.executors[1]}, and the cluster in '{cluster_dir}' has room for "
                f"{room}: at most {room} are used",
                err=True,
            )
        asked = asked.within(room)
    if asked.executors is not None and asked.slots_each is None and not master.startswith("local"):
        raise click.UsageError(f"--executors on {master} takes --slots-each: the cores that an executor has there")
    kafka = kafka_cluster(channel, bootstrap_servers, kafka_options)
    flow = load(spec)
    flow.check()
    if until_idle and (endless := next((one.name for one in flow.operators if never_ends(one.source)), None)):
        raise PenstockError(
            f"source '{endless}' has no end that --until-idle could wait for; leave that out, and end the run with "
            "'penstock stop'"
        )
    asked = dataclasses.replace(asked, dataflow=flow.name)
    decides = None if asked.policy is None else policy.policy_of(asked)
    plan = None if plan_file is None else validated(flow, read_plan(plan_file))
    at = at or Path("runs") / flow.name
    with Store(at) as store, LiveTable(quiet=quiet, as_json=as_json) as viewer:
        resumed = store.last_run() is not None
        store.begin_run(
            RunStart(
                dataflow=flow.name,
                flow_file=spec,
                pid=os.getpid(),
                master=master,
                cluster=None if cluster_dir is None else str(cluster_dir),
                slots_each=asked.slots_each,
                started_s=time.time(),
            )
        )
        viewer.say(f"{'Resuming' if resumed else 'Starting'} {flow.name} in {at} on {master} ...")

        if (few := policy.too_few(asked, master)) is not None:
            viewer.say(few)

        from penstock.engines.spark.engine import SparkEngine

        engine = SparkEngine(flow, at, master=master, confs=confs, plan=plan, sample_every=sample_every, kafka=kafka)
        controller = None
        if decides is not None:
            from penstock.control.controller import Controller

            settings = policy.settings_of(asked, every_s=every_s, micro_batch=True)
            controller = Controller(decides, settings, engine, store)
        ended = run(
            engine,
            Loop(engine=engine, store=store, controller=controller, on_window=viewer.show),
            Requests(at),
            Schedule(every_s=every_s, until=engine.idle if until_idle else None),
        )
        where = f"--master {master}" if cluster_dir is None else f"--cluster {cluster_dir}"
        resume = f"resume with: penstock run {spec} --at {at} {where}"
        if ended.failed:
            raise PenstockError(f"the run failed: {ended.why}; when that is mended, {resume}")
        viewer.say(f"Stopped ({ended.why}); {resume}")
