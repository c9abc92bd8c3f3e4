"""Reading what a command is given: a file that cannot be read is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.dataflow.errors import PenstockError


class InputError(PenstockError):
    """A file that a command was given cannot be read."""


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # spreadsheets like to put a byte-order mark first
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file; give a CSV in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; check the path") from None


class Counts(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.3 on
    """Whole numbers with commas between: 48,64,128."""

    name = "counts"

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
        return counts
