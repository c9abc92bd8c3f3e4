"""`penstock cluster`: a standalone Spark cluster on this machine."""

from __future__ import annotations

from pathlib import Path

import click

_AT = click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/cluster"),
    show_default=True,
    help="Directory of the cluster, with its state and logs.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


@click.group()
def command() -> None:
    """A Spark master and workers as processes of this machine, reachable only from this machine.

    \b
    Example:
      penstock cluster start --workers 3 --executor-cores 2
      penstock run wordcount.py --cluster runs/cluster --policy mst --executors 1..3
      penstock cluster stop
    """


@command.command()
@_AT
@click.option("--workers", type=click.IntRange(min=1), default=3, show_default=True, help="Number of workers.")
@click.option(
    "--executor-cores",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Executor cores per worker; may exceed the cores of the machine.",
)
@click.option(
    "--memory-mb", type=click.IntRange(min=1), default=1024, show_default=True, help="Memory per worker in MB."
)
@_JSON
def start(at: Path, workers: int, executor_cores: int, memory_mb: int, as_json: bool) -> None:
    """Start a master and workers, and wait until all workers have registered.

    \b
    Example:
      penstock cluster start --workers 3 --executor-cores 2
    """
    from rich.console import Console

    from penstock.api.spark_cluster import start_cluster

    with Console(stderr=True).status("Starting the cluster ..."):
        started = start_cluster(at, workers=workers, executor_cores=executor_cores, memory_mb=memory_mb)
    if as_json:
        _print_json(started)
    else:
        click.echo(
            f"Started {started.master} with {workers} workers of {executor_cores} cores; use it with --cluster {at}"
        )


@command.command()
@_AT
@_JSON
def status(at: Path, as_json: bool) -> None:
    """Print the processes of the cluster and the master's view of them. Exit with code 1 if a process is missing.

    \b
    Example:
      penstock cluster status --json
    """
    from penstock.api.spark_cluster import cluster_status

    current = cluster_status(at)
    if as_json:
        _print_json(current)
    else:
        click.echo(current.master)
        for name, state in current.daemons.items():
            click.echo(f"  {name:10} {state}")
        if current.workers_alive is None:
            click.echo("The master does not answer.")
        else:
            click.echo(
                f"{current.workers_alive} of {current.size.workers} workers registered, {current.slots_used} of "
                f"{current.size.workers * current.size.slots} slots in use; runs: {', '.join(current.runs) or 'none'}"
            )
        for problem in current.problems:
            click.echo(f"problem: {problem}")
    if not current.is_healthy:
        raise SystemExit(1)


@command.command()
@_AT
@_JSON
def stop(at: Path, as_json: bool) -> None:
    """Stop the master, the workers and their executors.

    \b
    Example:
      penstock cluster stop --at runs/cluster
    """
    from penstock.api.spark_cluster import stop_cluster

    result = stop_cluster(at)
    if as_json:
        _print_json(result)
    else:
        click.echo(f"Stopped {result.stopped}.")


def _print_json(value: object) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())
