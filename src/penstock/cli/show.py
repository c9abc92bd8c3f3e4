"""penstock show: a dataflow before it runs."""

from __future__ import annotations

import click


@click.command()
@click.argument("spec", metavar="FILE[:FLOW]")
@click.option("--slots", type=click.IntRange(min=1), default=2, show_default=True, help="Slots of the default plan.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; its 'plan' is what 'run --plan' and 'apply' take.")
def command(spec: str, slots: int, as_json: bool) -> None:
    """Operators, those replicated together, the default plan, and the reason for each cut.

    \b
    Example:
      penstock show wordcount.py --slots 4
      penstock show wordcount.py:flow --json
    """
    import msgspec
    from rich.console import Console

    from penstock.dataflow.load import load
    from penstock.plan import default_plan
    from penstock.report.dataflow_outline import dataflow_outline, outline_tree

    flow = load(spec)
    shown = dataflow_outline(flow, default_plan(flow, slots=slots))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(shown)))
    else:
        Console().print(outline_tree(shown))
