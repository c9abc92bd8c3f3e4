"""penstock compare: two implementations of the same computation."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.comparison import SAMPLE_ROWS
from penstock.api.profiling import OPERATOR_TYPES, PROFILED_ENGINES, ProfiledEngine
from penstock.cli.parameters import ABOVE_0, json_option, texts_by_name


@click.command()
@click.argument("a", metavar="A[:FLOW]")
@click.argument("b", metavar="B[:FLOW]")
@click.option("--slots", type=click.IntRange(min=1), required=True, help="Number of slots of the platform.")
@click.option(
    "--latency-ms", type=ABOVE_0, default=500.0, show_default=True, help="Highest mean latency in milliseconds."
)
@click.option(
    "--engine",
    type=click.Choice(PROFILED_ENGINES),
    help="Engine of the trials.  [default: Spark; row-by-row with given costs]",
)
@click.option("--behaviour-a", type=click.Path(path_type=Path), help="JSON file with the cost of the operators of A.")
@click.option("--behaviour-b", type=click.Path(path_type=Path), help="JSON file with the cost of the operators of B.")
@click.option("--like-a", type=click.Path(path_type=Path), help="Directory of a run of A with the costs to use.")
@click.option("--like-b", type=click.Path(path_type=Path), help="Directory of a run of B with the costs to use.")
@click.option("--check/--no-check", default=True, show_default=True, help="Compare the results first, on Spark.")
@click.option(
    "--sample-rows",
    type=click.IntRange(min=1),
    default=SAMPLE_ROWS,
    show_default=True,
    help="Rows of each source for the comparison of the results.",
)
@click.option(
    "--type-a",
    "types_a",
    multiple=True,
    metavar="OPERATOR=TYPE",
    help=f"Type of an operator of A, if it is known: {', '.join(OPERATOR_TYPES)}. May be repeated.",
)
@click.option(
    "--type-b", "types_b", multiple=True, metavar="OPERATOR=TYPE", help="Type of an operator of B. May be repeated."
)
@click.option(
    "--at", type=click.Path(path_type=Path, file_okay=False), help="Study directory.  [default: studies/<a>-and-<b>]"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of a simulation.")
@json_option("Print the result as JSON.")
def command(
    a: str,
    b: str,
    slots: int,
    latency_ms: float,
    engine: ProfiledEngine | None,
    behaviour_a: Path | None,
    behaviour_b: Path | None,
    like_a: Path | None,
    like_b: Path | None,
    check: bool,
    sample_rows: int,
    types_a: tuple[str, ...],
    types_b: tuple[str, ...],
    at: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare two dataflows with the same purpose: are the results equal, and which one sustains a higher rate?

    Both process the same sample of A's input on Spark; --no-check omits this. Then both are profiled, as by penstock
    profile, on Spark or in simulation (--behaviour-a and --behaviour-b, or --like-a and --like-b). The same command
    continues an interrupted comparison. The exit code is 1 if the results differ.

    \b
    Example:
      penstock compare plain.py fast.py --slots 16
      penstock compare plain.py fast.py --slots 16 --like-a runs/plain --like-b runs/fast --engine micro-batch
    """
    import sys
    from contextlib import ExitStack

    import msgspec
    from rich.console import Console

    import penstock
    from penstock.cli.profile import LiveRounds
    from penstock.report.comparison_tables import comparison_tables
    from penstock.study.stepwise.profile import ProfileProgress

    with ExitStack() as stack:
        tables: dict[str, LiveRounds] = {}

        def show(program: str, progress: ProfileProgress) -> None:
            if program not in tables:
                stack.close()  # the table of the other dataflow
                tables[program] = stack.enter_context(LiveRounds(quiet=as_json))
            tables[program].show(progress)

        result = penstock.compare(
            a,
            b,
            slots=slots,
            latency_s=latency_ms / 1e3,
            engine=engine,
            behaviour_a=behaviour_a,
            behaviour_b=behaviour_b,
            like_a=like_a,
            like_b=like_b,
            check=check,
            sample_rows=sample_rows,
            types_a=texts_by_name(types_a, "--type-a"),
            types_b=texts_by_name(types_b, "--type-b"),
            at=at,
            seed=seed,
            on_message=None if as_json else lambda message: click.echo(message, err=True),
            on_progress=show,
        )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        Console(highlight=False).print(comparison_tables(result))
    if result.check is not None and not result.check.equal:
        sys.exit(1)
