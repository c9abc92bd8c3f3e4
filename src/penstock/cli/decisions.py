"""penstock decisions: the decisions of a policy in a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import RUN_DIRECTORY, json_option

WIDE = 130  # smallest number of columns for the table


@click.command()
@RUN_DIRECTORY
@click.option("--changes", "changes_only", is_flag=True, help="Omit decisions to hold the plan.")
@click.option("--last", type=click.IntRange(min=1), help="Print only this many of the latest decisions.")
@json_option("Print all fields as a JSON array.")
def command(run_dir: Path, changes_only: bool, last: int | None, as_json: bool) -> None:
    """Print each decision with its reason, the expected result and the observed result.

    Equal decisions that follow each other are printed once, with their number. Below are the costs that policy auto has
    learned, and how each plan has done.

    \b
    Example:
      penstock decisions runs/wc
      penstock decisions runs/wc --changes --json | jq '.[].expected'
    """
    import msgspec
    from rich.console import Console

    import penstock
    from penstock.report.decisions import decision_list, decision_table, interval_summary
    from penstock.report.learned import learned_tables

    numbered, total = penstock.open_run(run_dir).decision_rows(changes_only=changes_only, last=last)
    rows = [row for _, row in numbered]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    console = Console(highlight=False, markup=False)  # names may contain brackets
    if total and not rows:
        console.print(f"No plan was changed: all {total} decisions were to hold.")
    elif not rows:
        console.print(
            "The run has no decisions; start it with a policy, such as "
            "'penstock run FILE --policy drs --latency-ms 2000'.",
            soft_wrap=True,
        )
    else:
        console.print(decision_table(rows) if console.width >= WIDE else decision_list(rows))
        if (summary := interval_summary(rows)) is not None:
            console.print(summary, soft_wrap=True)
        for table in learned_tables(rows[-1]):
            console.print(table)
