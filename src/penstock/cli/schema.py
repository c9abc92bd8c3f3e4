"""`penstock schema`: the JSON schema of a file format."""

from __future__ import annotations

from typing import Any

import click

from penstock.models.curve import CurvesFormat
from penstock.models.flow import Flow
from penstock.planning.vms import SizesFormat

# name -> type of the format
SCHEMAS: dict[str, Any] = {
    "curves": CurvesFormat,
    "dataflow": Flow,
    "sizes": SizesFormat,
}


@click.command()
@click.argument("name", type=click.Choice(sorted(SCHEMAS)))
@click.option("--json", "as_json", is_flag=True, help="A schema is JSON anyway.")
def command(name: str, as_json: bool) -> None:
    """Print the JSON schema of a file format.

    \b
    Example:
      penstock schema curves
    """
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(msgspec.json.schema(SCHEMAS[name]))).decode())
