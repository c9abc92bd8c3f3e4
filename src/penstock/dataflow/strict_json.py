"""JSON that people write, read strictly: a key that is given twice is a mistake, and readers drop one of the two."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

Value = TypeVar("Value")


def decoded(text: str | bytes, kind: type[Value]) -> Value:
    """As `msgspec.json.decode`, and with its errors.

    >>> decoded('{"split": 1, "split": 2}', dict[str, int])
    Traceback (most recent call last):
    msgspec.ValidationError: 'split' is given twice in one object; give it once
    """
    value = msgspec.json.decode(text, type=kind)
    json.loads(text, object_pairs_hook=each_key_once)  # msgspec has no such hook
    return value


def each_key_once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A hook for Python's reader."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise msgspec.ValidationError(f"'{key}' is given twice in one object; give it once")
        found[key] = value
    return found
