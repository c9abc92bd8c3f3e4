"""Values that users write and keep as JSON, and strict JSON decoding."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from penstock.dataflow.errors import PenstockError

Value = TypeVar("Value")


class JsonDocument:
    """Mixin for a frozen msgspec struct that users write as a JSON file."""

    __slots__ = ()

    noun: ClassVar[str]  # noun with its article, for error messages
    json_example: ClassVar[str]
    error_type: ClassVar[type[PenstockError]]

    def to_json(self) -> str:
        """Return the value as indented JSON with sorted keys."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted")).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the value that the JSON text describes.

        Raises:
            PenstockError: The text is not such a value. The message contains an example.
        """
        try:
            return decode_json(text, cls)
        except msgspec.DecodeError as error:
            raise cls.error_type(
                f"The text is not {cls.noun}: {error}. Write {cls.noun} like {cls.json_example}"
            ) from None

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values of these fields."""
        return msgspec.structs.replace(self, **changes)  # type: ignore[type-var]


def decode_json(text: str | bytes, kind: type[Value]) -> Value:
    """Decode like `msgspec.json.decode`, but refuse a key that occurs twice in one object.

    >>> decode_json('{"split": 1, "split": 2}', dict[str, int])
    Traceback (most recent call last):
    msgspec.ValidationError: 'split' is given twice in one object; give it once
    """
    value = msgspec.json.decode(text, type=kind)
    json.loads(text, object_pairs_hook=refuse_repeated_keys)  # msgspec has no such hook
    return value


def refuse_repeated_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Build a dict from key-value pairs; an `object_pairs_hook` for `json.loads` that refuses repeated keys."""
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise msgspec.ValidationError(f"'{key}' is given twice in one object; give it once")
        result[key] = value
    return result
