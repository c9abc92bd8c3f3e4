"""What all commands that ask a running run share: the question, the wait, the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.given import Finite

if TYPE_CHECKING:
    from penstock.control.requests import Request

run_directory = click.argument("run_dir", metavar="DIR", type=click.Path(path_type=Path))
timeout = click.option(
    "--timeout", "timeout_s", type=Finite(min=0.0), default=120.0, show_default=True, help="Seconds to wait."
)
as_json = click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")


def ask_and_print(run_dir: Path, request: Request, *, timeout_s: float, as_json: bool) -> None:
    from penstock.control.requests import ask

    print_answer(ask(run_dir, request, timeout_s=timeout_s), as_json=as_json)


def print_answer(answer: Any, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
