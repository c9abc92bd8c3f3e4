"""The state of an operator as text: JSON, in which types that JSON does not have are marked.

A value must be the same before and after it was stored, because the batches of a run determine when it is stored.
Values for which this does not hold are refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock.dataflow.errors import PenstockError

_PLAIN = {type(None), bool, int, float, str}
_WRITERS: dict[type, tuple[str, Callable[[Any], Any]]] = {
    bytes: ("$bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("$datetime", lambda value: [value.isoformat(), value.fold]),
    date: ("$date", date.isoformat),
    timedelta: ("$timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    Decimal: ("$decimal", str),
}
_READERS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": lambda parts: datetime.fromisoformat(parts[0]).replace(fold=parts[1]),
    "$date": date.fromisoformat,
    "$timedelta": lambda parts: timedelta(*parts),
    "$decimal": Decimal,
    "$tuple": tuple,
    "$dict": lambda items: dict(items),
}


class StateError(PenstockError):
    """The state of an operator contains a value that cannot be stored."""


def state_text(state: dict[str, Any]) -> str:
    """Return the text of a state.

    Raises:
        StateError: A value has a type that cannot be stored.

    >>> state_text({"last": Decimal("1.50"), "pair": (1, 2.0)})
    '{"last":{"$decimal":"1.50"},"pair":{"$tuple":[1,2.0]}}'
    """
    return json.dumps(_encoded(state, "ctx.state"), separators=(",", ":"))


def state_of_text(text: str) -> dict[str, Any]:
    """Return the state of a text.

    >>> state_of_text('{"last":{"$decimal":"1.50"},"pair":{"$tuple":[1,2.0]}}')
    {'last': Decimal('1.50'), 'pair': (1, 2.0)}
    """
    state: dict[str, Any] = json.loads(text, object_hook=_decoded) if '"$' in text else json.loads(text)
    return state


def _encoded(value: Any, path: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        items = list(value)
        if not set(map(type, items)) <= _PLAIN:
            items = [_encoded(item, f"{path}[{at}]") for at, item in enumerate(items)]
        return items if kind is list else {"$tuple": items}
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise StateError(
                    f"{path} has the key {key!r:.60} of type {type(key).__name__}, which cannot be stored; use "
                    "strings as keys, such as str(key)"
                )
        encoded = {key: _encoded(v, f"{path}[{key!r:.40}]") for key, v in value.items()}
        return {"$dict": list(encoded.items())} if any(key.startswith("$") for key in encoded) else encoded
    if kind in _WRITERS:
        mark, write = _WRITERS[kind]
        return {mark: write(value)}
    raise StateError(
        f"{path} is of type {kind.__module__}.{kind.__name__}, which cannot be stored; use None, bool, int, float, "
        "str, bytes, Decimal, date, datetime, timedelta, list, tuple, or dict with strings as keys"
    )


def _decoded(item: dict[str, Any]) -> Any:
    if len(item) == 1:
        ((mark, value),) = item.items()
        if mark in _READERS:
            return _READERS[mark](value)
    return item
