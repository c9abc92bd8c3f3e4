"""Checks of a single declaration: names, columns, schemas, and the parameters of functions."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.dataflow.errors import DataflowError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def check_name(what: str, name: str) -> str:
    """Return the name, or raise DataflowError if it is not an identifier of ASCII letters."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DataflowError(
            f"The {what} name {name!r} is not allowed; use a letter, then letters, digits and underscores."
        )
    return name


def column_names(operator: str, option: str, names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names given for an option that takes a list of columns, or None if it is not given."""
    if isinstance(names, str):
        raise DataflowError(
            f"Operator '{operator}' has {option}={names!r}, but {option} is a list of names; give {option}=[{names!r}]."
        )
    columns = None if names is None else tuple(names)
    if columns is not None and not all(isinstance(name, str) for name in columns):
        raise DataflowError(f"Operator '{operator}' has {option}={list(columns)!r}; give a list of column names.")
    return columns


def schema_columns(schema: str) -> tuple[str, ...]:
    """Return the column names of a DDL schema such as 'user string, at timestamp'.

    Raises:
        DataflowError: The schema is not a list of names and types.

    >>> schema_columns("user string, price decimal(10, 2), tags array<struct<a: int, b: int>>")
    ('user', 'price', 'tags')
    """
    names, depth, field = [], 0, ""
    for character in schema + ",":
        depth += character in "(<"
        depth -= character in ")>"
        if character == "," and depth == 0:
            name = re.match(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*\S", field)
            if name is None:
                raise DataflowError(
                    f"schema={schema!r} is not a list of 'name type'; write it like 'user string, n bigint'."
                )
            names.append(name[1] or name[2])
            field = ""
        else:
            field += character
    return tuple(names)


def check_keys(operator: str, keys: Sequence[str], subject: str | None = None) -> None:
    """Raise DataflowError unless the keys of a keyed operator are a list of distinct names."""
    subject = subject or f"Keyed operator '{operator}'"
    if isinstance(keys, str):
        raise DataflowError(f"{subject} has keys={keys!r}; give a list, keys=[{keys!r}].")
    if not keys:
        raise DataflowError(
            f"{subject} has no keys; give the columns that partition its state, such as "
            "keys=['user'], or declare it with global_state if its state cannot be partitioned."
        )
    if not all(isinstance(key, str) for key in keys):
        raise DataflowError(f"{subject} has keys={list(keys)!r}; give a list of column names.")
    if len(set(keys)) != len(keys):
        raise DataflowError(f"{subject} has keys={list(keys)}; give each key once.")


def takes_each_input(operator: str, fn: Callable[..., Any], inputs: int) -> bool:
    """Return whether a function takes one DataFrame per input instead of the union of all inputs.

    Raises:
        DataflowError: The function fits neither.
    """
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return inputs > 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    # A parameter with the default None may take an input; any other default is a setting of the function.
    accepted = required + sum(p.default is None for p in positional)
    if required <= inputs <= accepted or any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return inputs > 1
    if required <= 1 <= len(positional):
        return False
    raise DataflowError(
        f"The function of '{operator}' takes {required} DataFrames but the operator has {inputs} input(s); it must "
        "take "
        f"{inputs}, or 1 for their union."
    )
