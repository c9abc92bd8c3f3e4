"""Document: a pure value that people write and keep as JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from penstock.dataflow.errors import PenstockError
from penstock.dataflow.strict_json import decoded


class Document:
    """What such a value can do; it is a frozen struct besides."""

    __slots__ = ()

    called: ClassVar[str]  # with its article
    example: ClassVar[str]  # as JSON
    refused_with: ClassVar[type[PenstockError]]

    def to_json(self) -> str:
        return msgspec.json.format(msgspec.json.encode(self, order="sorted")).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        try:
            return decoded(text, cls)
        except msgspec.DecodeError as error:
            raise cls.refused_with(
                f"this is not {cls.called}: {error}; {cls.called} looks like {cls.example}"
            ) from None

    def replace(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)  # type: ignore[type-var]
