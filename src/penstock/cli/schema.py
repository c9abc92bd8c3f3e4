"""`penstock schema`: the JSON schema of a format."""

from __future__ import annotations

import importlib

import click

# name -> (module, Struct)
FORMATS: dict[str, tuple[str, str]] = {
    "mst-fit": ("penstock.report.mst", "MstReport"),
    "mst-subset": ("penstock.report.mst", "SubsetReport"),
    "elastic": ("penstock.report.mst", "ElasticReport"),
}


@click.command()
@click.argument("name", type=click.Choice(list(FORMATS)))
@click.option("--json", "as_json", is_flag=True, help="The schema is JSON either way.")
def command(name: str, as_json: bool) -> None:
    """Print the JSON schema of format NAME.

    \b
    Example:
      penstock schema elastic
    """
    import msgspec

    module, struct = FORMATS[name]
    schema = msgspec.json.schema(getattr(importlib.import_module(module), struct))
    click.echo(msgspec.json.format(msgspec.json.encode(schema)).decode())
