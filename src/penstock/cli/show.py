"""penstock show: the structure of a dataflow before it runs."""

from __future__ import annotations

import click

from penstock.cli.parameters import json_option


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Slots of the default plan.")
@click.option("--no-spark", is_flag=True, help="Do not compile the dataflow on Spark, which takes some seconds.")
@json_option("Print JSON; its field 'plan' is accepted by 'run --plan' and 'apply'.")
def command(flow: str, slots: int, no_spark: bool, as_json: bool) -> None:
    """Print the operators, the default plan, and the reason for each cut, if Spark accepts the dataflow.

    All queries are compiled on a local Spark, and none is started. A dataflow that cannot run is refused here.

    \b
    Example:
      penstock show wordcount.py --slots 4
      penstock show wordcount.py:flow --json
      penstock show wordcount.py --no-spark
      penstock show penstock.apps.nexmark:q5
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.dataflow_outline import outline_tree

    structure = penstock.outline(flow, slots=slots)
    if not no_spark:
        try:
            penstock.check(flow, structure.plan)
        except penstock.SparkUnavailableError as error:
            click.echo(f"The dataflow was not compiled, so only its declaration was checked: {error}", err=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(structure)))
    else:
        Console().print(outline_tree(structure))
