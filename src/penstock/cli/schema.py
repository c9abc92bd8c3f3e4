"""`penstock schema`: print the JSON schema of a file format or of the output of --json."""

from __future__ import annotations

import click

from penstock.api.schemas import SCHEMAS, schema


@click.command("schema")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Accepted for consistency; a schema is always JSON.")
def command(name: str | None, as_json: bool) -> None:
    """Print the JSON schema of the format NAME, or the names of all formats.

    \b
    Example:
      penstock schema plan
    """
    import msgspec

    if name is None:
        click.echo(msgspec.json.encode(list(SCHEMAS)).decode() if as_json else "\n".join(SCHEMAS))
        return
    click.echo(msgspec.json.format(msgspec.json.encode(schema(name))).decode())
