"""penstock stop: stops a running run cleanly."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli import asking


@click.command()
@asking.run_directory
@asking.timeout
@asking.as_json
def command(run_dir: Path, timeout_s: float, as_json: bool) -> None:
    """Stop a running run cleanly and wait until its process has ended; 'penstock run' resumes it.

    \b
    Example:
      penstock stop runs/wc
    """
    from penstock.control.requests import Stop, ask, wait_until_gone

    answer = ask(run_dir, Stop(), timeout_s=timeout_s)
    wait_until_gone(run_dir, timeout_s=timeout_s)
    asking.print_answer(answer, as_json=as_json)
