"""`penstock arena`: compare all policies on generated dataflows, loads and both simulated engines."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.api.arena import ARENA_POLICIES, DEVELOPMENT_SEEDS, ENGINES, LOADS, SHAPES
from penstock.cli.parameters import HtmlFile, Names


@click.command()
@click.option(
    "--at",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("arena"),
    show_default=True,
    help="Directory of the results; cells that it contains are not simulated again.",
)
@click.option(
    "--policies", type=Names(ARENA_POLICIES), default=ARENA_POLICIES, help="Policies to compare.  [default: all]"
)
@click.option("--shapes", type=Names(SHAPES), default=SHAPES, help="Shapes of the generated dataflows.  [default: all]")
@click.option("--loads", type=Names(LOADS), default=LOADS, help="Loads to simulate.  [default: all]")
@click.option("--engines", type=Names(ENGINES), default=ENGINES, help="Engines to simulate.  [default: both]")
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(min=0),
    multiple=True,
    default=DEVELOPMENT_SEEDS,
    show_default=True,
    help="Seed of the dataflows; repeatable.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Number of parallel processes.")
@click.option("--html", type=HtmlFile(), help="HTML page for the results.  [default: arena.html in the directory]")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    at: Path,
    policies: tuple[str, ...],
    shapes: tuple[str, ...],
    loads: tuple[str, ...],
    engines: tuple[str, ...],
    seeds: tuple[int, ...],
    jobs: int,
    html: Path | None,
    as_json: bool,
) -> None:
    """Simulate policies for two hours on generated dataflows, and compare them with plans in hindsight.

    Each dataflow runs under each load on each engine. The page lists the best policy of each cell, the worst cases
    and their decisions. Ctrl-C keeps the results of complete cells.

    \b
    Example:
      penstock arena --jobs 8
      penstock arena --policies auto,drs --shapes chain,loop --loads flat,step --seed 7
    """
    import msgspec
    from rich.console import Console
    from rich.progress import Progress

    import penstock
    from penstock.report.arena_tables import standings_text
    from penstock.report.page import arena_page, write_page

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("cells", total=None)
        matches = penstock.arena(
            at,
            policies=policies,
            shapes=shapes,
            loads=loads,
            engines=engines,
            seeds=seeds,
            jobs=jobs,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    page = at / "arena.html" if html is None else html
    write_page(page, arena_page(matches))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(matches)).decode())
    else:
        click.echo(standings_text(matches))
        click.echo(f"The page is {page}.")
