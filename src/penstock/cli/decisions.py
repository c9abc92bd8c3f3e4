"""penstock decisions: what a policy decided in a run, why, what it expected and what was observed."""

from __future__ import annotations

from pathlib import Path

import click

WIDE = 130  # columns from which on the table has room


@click.command()
@click.argument("run_dir", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--changes", "only_changes", is_flag=True, help="Leave the holds out.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last so many of them.")
@click.option("--json", "as_json", is_flag=True, help="All of it, as a JSON array.")
def command(run_dir: Path, only_changes: bool, last: int | None, as_json: bool) -> None:
    """What was decided, why, what was expected, what was observed. Holds that repeat are one line.

    \b
    Example:
      penstock decisions runs/wc
      penstock decisions runs/wc --changes --json | jq '.[].expected'
    """
    from collections import deque

    import msgspec
    from rich.console import Console

    from penstock.report.decisions import decision_list, decision_table
    from penstock.store import DecisionRecord, StoreReader

    made, kept = 0, deque[DecisionRecord](maxlen=last)  # those of a month do not fit into memory
    with StoreReader(run_dir) as reader:
        for _, row in reader.iter_decisions():
            made += 1
            if row.kind == "change" or not only_changes:
                kept.append(row)
    rows = list(kept)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    console = Console(highlight=False, markup=False)  # words of a run may have brackets
    if made and not rows:
        console.print(f"no change among {made} decisions: all of them are to hold")
    elif not rows:
        console.print(
            "nobody decided anything in this run; start it with --policy, such as 'penstock run FILE --policy drs "
            "--latency-ms 2000'",
            soft_wrap=True,
        )
    else:
        console.print(decision_table(rows) if console.width >= WIDE else decision_list(rows))
