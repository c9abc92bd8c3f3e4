"""Files and words that commands are given, as values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from penstock.brokers.cluster import KafkaCluster
from penstock.dataflow.errors import PenstockError, PlanError
from penstock.plan.plan import Plan
from penstock.plan.validation import MAX_REPLICAS

KAFKA_OPTION = click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="NAME=VALUE", help="Secrets as env:NAME or file:PATH."
)


def read(path: Path, what: str) -> bytes:
    """The file, or one clear error."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PenstockError(f"the {what} file '{path}' cannot be read ({error.strerror}); check the path") from None


def read_text(path: Path, what: str = "CSV") -> str:
    try:
        return read(path, what).decode("utf-8-sig")  # spreadsheets like to put a byte-order mark first
    except UnicodeDecodeError:
        raise PenstockError(f"the {what} file '{path}' is not text; give one in UTF-8") from None


def read_plan(file: Path) -> Plan:
    try:
        return Plan.from_json(read(file, "plan"))
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


class Finite(click.FloatRange):
    """A number, within bounds if there are any: no bound keeps out 'nan', and few keep out 'inf'."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"'{value}' is not a finite number", param, ctx)
        return found


ABOVE_0 = Finite(min=0, min_open=True)
SHARE = Finite(min=0, max=1, min_open=True, max_open=True)


class Counts(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """Whole numbers with commas between: 48,64,128; with `some`, at least one."""

    name = "counts"

    def __init__(self, *, some: bool = False) -> None:
        self.some = some

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            counts = tuple(int(item) for item in value.split(",") if item.strip())
        except ValueError:
            self.fail(f"'{value}' is not a list of whole numbers such as 48,64,128", param, ctx)
        if any(count < 1 for count in counts):
            self.fail(f"'{value}' has a number below 1", param, ctx)
        if self.some and not counts:
            self.fail(f"'{value}' has no number in it; give one or more, such as 1,2,3", param, ctx)
        return counts


class HtmlFile(click.Path):
    """The path of an HTML file to write."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        if path.suffix.lower() not in (".html", ".htm"):
            self.fail(f"'{path}' does not end in .html; plots are written as one HTML file", param, ctx)
        return super().convert(path, param, ctx)


class Between(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """The least and the most: 1..6, or 4 for both."""

    name = "least..most"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        least, dots, most = value.partition("..")
        try:
            found = int(least), int(most if dots else least)
        except ValueError:
            self.fail(f"'{value}' is not two whole numbers such as 1..6", param, ctx)
        if not 1 <= found[0] <= found[1]:
            self.fail(f"'{value}': give 1 or more, and the least first", param, ctx)
        if found[1] > MAX_REPLICAS:
            self.fail(f"'{value}': each has its replica, of which a plan has {MAX_REPLICAS:,} at most", param, ctx)
        return found


def kafka_cluster(channel: str, bootstrap_servers: str | None, options: Iterable[str]) -> KafkaCluster | None:
    """The cluster that --channel kafka and its options name; None for the embedded channel."""
    given = list(options)
    if channel != "kafka":
        if bootstrap_servers is not None or given:
            raise click.UsageError("--bootstrap-servers and --kafka-option are for --channel kafka; give that too")
        return None
    if bootstrap_servers is None:
        raise click.UsageError("--channel kafka needs --bootstrap-servers, such as --bootstrap-servers localhost:9092")
    return KafkaCluster.of(bootstrap_servers, named(given, "--kafka-option"))


def named(given: Iterable[str], what: str) -> dict[str, str]:
    """NAME=VALUE, as words."""
    found = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{what} '{word}': give NAME=VALUE, such as security.protocol=SASL_SSL")
        found[name] = value
    return found
