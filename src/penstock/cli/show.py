"""penstock show: the structure of a dataflow before it runs."""

from __future__ import annotations

import click

from penstock.cli.parameters import json_option


@click.command()
@click.argument("flow", metavar="FILE[:FLOW]")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Slots of the default plan.")
@json_option("Print JSON; its field 'plan' is accepted by 'run --plan' and 'apply'.")
def command(flow: str, slots: int, as_json: bool) -> None:
    """Print the operators, the default plan, and the reason for each cut.

    \b
    Example:
      penstock show wordcount.py --slots 4
      penstock show wordcount.py:flow --json
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.dataflow_outline import outline_tree

    structure = penstock.outline(flow, slots=slots)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(structure)))
    else:
        Console().print(outline_tree(structure))
