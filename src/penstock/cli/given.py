"""Files and words that commands are given, as values."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from penstock.dataflow.errors import PlanError
from penstock.plan.plan import Plan


def read_plan(file: Path) -> Plan:
    try:
        text = file.read_bytes()
    except OSError as error:
        raise PlanError(
            f"the plan '{file}' cannot be read ({error.strerror}); 'penstock show --json' has one"
        ) from None
    try:
        return Plan.from_json(text)
    except PlanError as error:
        raise PlanError(f"{file}: {error}") from None


def pairs(given: Iterable[str], what: str, example: str) -> dict[str, float]:
    """NAME=NUMBER, each name once."""
    found: dict[str, float] = {}
    for word in given:
        name, equals, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = float("nan")
        if not name or not equals or not 0 <= value < float("inf"):
            raise click.UsageError(f"'{word}': give {what}, such as {example}")
        if name in found:
            raise click.UsageError(f"'{name}' is given twice; give it once")
        found[name] = value
    return found


def whole(given: dict[str, float]) -> dict[str, int]:
    for name, value in given.items():
        if value != int(value):
            raise click.UsageError(f"'{name}={value:g}': replicas are a whole number")
    return {name: int(value) for name, value in given.items()}
