"""penstock rescale: change the replicas and threads of a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, TIMEOUT, json_option, thread_counts_by_name


@click.command()
@RUN_DIRECTORY
@click.argument("replicas", metavar="OPERATOR=REPLICAS|OPERATOR.threads=THREADS[,THREADS]...", nargs=-1, required=True)
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(run_dir: Path, replicas: tuple[str, ...], timeout_s: float, as_json: bool) -> None:
    """Change the number of replicas, or of threads per replica, of operators of a running dataflow.

    Cuts that become necessary are added. A list of threads has a number for each replica, which receives rows in
    proportion to it. A change of threads restarts no query unless the shares of the rows change.

    \b
    Example:
      penstock rescale runs/wc count=4 split=2
      penstock rescale runs/shop lookup.threads=64
      penstock rescale runs/shop lookup=3 lookup.threads=60,60,40
    """
    import msgspec

    import penstock

    counts = thread_counts_by_name(replicas)
    answer = penstock.open_run(run_dir).rescale_operators(counts, timeout_s=timeout_s)
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
