"""`penstock cluster`: a standalone Spark cluster on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import click

_AT = click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/cluster"),
    show_default=True,
    help="The cluster's directory: its record and its logs.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="As JSON.")


@click.group()
def command() -> None:
    """A Spark master and workers as processes of this machine, reachable from it alone.

    \b
    Example:
      penstock cluster start --workers 3 --slots 2
      penstock run wordcount.py --cluster runs/cluster --policy mst --executors 1..3
      penstock cluster stop
    """


@command.command()
@_AT
@click.option("--workers", type=click.IntRange(min=1), default=3, show_default=True, help="Executors at most.")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Tasks at once on each.")
@click.option("--memory-mb", type=click.IntRange(min=1), default=1024, show_default=True, help="Of each worker.")
@_JSON
def start(at: Path, workers: int, slots: int, memory_mb: int, as_json: bool) -> None:
    """Start master and workers, and wait until they are up. Slots may exceed the cores of the machine.

    \b
    Example:
      penstock cluster start --workers 3 --slots 2
    """
    from penstock.engines.spark import cluster

    asked = cluster.Asked(workers=workers, slots=slots, memory_mb=memory_mb)
    up = cluster.start(at, asked)
    if as_json:
        click.echo(json.dumps({"master": up.master, "workers": workers, "slots": slots, "at": str(at)}))
    else:
        click.echo(f"{up.master} is up with {workers} workers of {slots} slots each; use it with --cluster {at}")


@command.command()
@_AT
@_JSON
def status(at: Path, as_json: bool) -> None:
    """What is running, and what the master says of it. The exit code is 1 where something is missing.

    \b
    Example:
      penstock cluster status --json
    """
    import msgspec

    from penstock.engines.spark import cluster

    found = cluster.status(at)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        click.echo(found.master)
        for name, how in found.daemons.items():
            click.echo(f"  {name:10} {how}")
        if found.workers_alive is None:
            click.echo("the master does not answer")
        else:
            click.echo(
                f"{found.workers_alive} of {found.asked.workers} workers registered, {found.slots_used} of "
                f"{found.asked.workers * found.asked.slots} slots in use; runs: {', '.join(found.runs) or 'none'}"
            )
        for trouble in found.trouble:
            click.echo(f"trouble: {trouble}")
    if not found.healthy:
        raise SystemExit(1)


@command.command()
@_AT
@_JSON
def stop(at: Path, as_json: bool) -> None:
    """End master and workers, and with them the executors.

    \b
    Example:
      penstock cluster stop --at runs/cluster
    """
    from penstock.engines.spark import cluster

    master = cluster.running(at).master
    cluster.stop(at)
    click.echo(json.dumps({"stopped": master}) if as_json else f"stopped {master}")
