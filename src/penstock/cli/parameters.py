"""Parameter types and shared options of the commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from penstock.dataflow.local_paths import local_directory
from penstock.plan.validation import MAX_REPLICAS

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

KAFKA_OPTION = click.option(
    "--kafka-option",
    "kafka_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the Kafka client; refer to secrets as env:NAME or file:PATH. May be repeated.",
)
RUN_DIRECTORY = click.argument("run_dir", metavar="DIR", type=click.Path(path_type=Path))


class Finite(click.FloatRange):
    """A finite number within optional bounds; click accepts 'nan' everywhere and 'inf' without an upper bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"'{value}' is not a finite number", param, ctx)
        return number


ABOVE_0 = Finite(min=0, min_open=True)
ROUTING = click.option(
    "--routing",
    type=click.Choice(["capacity", "even"]),
    help="Rows of each replica: in proportion to what it sustains, or all the same.  [default: as in the plan]",
)
SHARE = Finite(min=0, max=1, min_open=True, max_open=True)
TIMEOUT = click.option(
    "--timeout-s", type=Finite(min=0.0), default=120.0, show_default=True, help="Seconds to wait for the answer."
)


class Counts(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """Positive whole numbers separated by commas, such as 48,64,128."""

    name = "counts"

    def __init__(self, *, required: bool = False) -> None:
        self.required = required

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
            self.fail(f"'{value}' contains a number below 1", param, ctx)
        if self.required and not counts:
            self.fail(f"'{value}' contains no number; give one or more, such as 1,2,3", param, ctx)
        return counts


class Names(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """Known names separated by commas, such as chain,loop."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self.known = known

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        names = value if isinstance(value, tuple) else tuple(name.strip() for name in value.split(",") if name.strip())
        unknown = [name for name in names if name not in self.known]
        if unknown or not names:
            self.fail(f"'{', '.join(unknown)}' is unknown; use some of {', '.join(self.known)}", param, ctx)
        return names


class Factor(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """A factor above 0, such as 2x or 0.5."""

    name = "factor"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            factor = float(value.removesuffix("x")) if isinstance(value, str) else value
        except ValueError:
            factor = math.nan
        if not 0 < factor < math.inf:
            self.fail(f"'{value}' is not a factor above 0, such as 2x or 0.5x", param, ctx)
        return factor


class HtmlFile(click.Path):
    """The path of an HTML file to write."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = local_directory(value)
        if path.suffix.lower() not in (".html", ".htm"):
            self.fail(f"'{path}' does not end in .html; plots are written as one HTML file", param, ctx)
        return super().convert(path, param, ctx)


PLOT = click.option("--plot", type=HtmlFile(), help="Write the plots to this HTML file.")


class Between(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """The smallest and the largest number, such as 1..6; a single number is both."""

    name = "min..max"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        first, dots, second = value.partition("..")
        try:
            smallest, largest = int(first), int(second if dots else first)
        except ValueError:
            self.fail(f"'{value}' is not two whole numbers such as 1..6", param, ctx)
        if not 1 <= smallest <= largest:
            self.fail(f"'{value}': the smaller number comes first and is at least 1", param, ctx)
        if largest > MAX_REPLICAS:
            self.fail(
                f"'{value}': a plan has at most {MAX_REPLICAS:,} replicas, and each executor needs one", param, ctx
            )
        return smallest, largest


def numbers_by_name(words: Iterable[str], form: str, example: str) -> dict[str, float]:
    """Parse NAME=NUMBER words; each name may occur once."""
    numbers: dict[str, float] = {}
    for word in words:
        name, equals, number = word.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not name or not equals or not 0 <= value < math.inf:
            raise click.UsageError(f"'{word}' is not of the form {form}, such as {example}")
        if name in numbers:
            raise click.UsageError(f"'{name}' is given twice; give it once")
        numbers[name] = value
    return numbers


def counts_by_name(words: Iterable[str], form: str, example: str) -> dict[str, int]:
    """Parse NAME=COUNT words."""
    numbers = numbers_by_name(words, form, example)
    for name, value in numbers.items():
        if value != int(value):
            raise click.UsageError(f"'{name}={value:g}': the number must be a whole number")
    return {name: int(value) for name, value in numbers.items()}


def thread_counts_by_name(words: Collection[str]) -> dict[str, int | tuple[int, ...]]:
    """Parse OPERATOR=REPLICAS and OPERATOR.threads=THREADS words; THREADS may be a list such as 60,60,40."""
    lists = {word for word in words if "," in word.partition("=")[2]}
    counts: dict[str, int | tuple[int, ...]] = {}
    counts |= counts_by_name((word for word in words if word not in lists), "OPERATOR=REPLICAS", "count=4")
    for name, numbers in texts_by_name(lists, "OPERATOR.threads=THREADS").items():
        counts[name] = Counts(required=True).convert(numbers, None, None)
    return counts


def texts_by_name(words: Iterable[str], option: str) -> dict[str, str]:
    """Parse NAME=VALUE words."""
    texts = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} '{word}' is not of the form NAME=VALUE, such as a.name=a-value")
        texts[name] = value
    return texts


def json_option(help_text: str) -> Option:
    return click.option("--json", "as_json", is_flag=True, help=help_text)


def combined(options: Iterable[Option]) -> Option:
    """Return one decorator that adds all options in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate
