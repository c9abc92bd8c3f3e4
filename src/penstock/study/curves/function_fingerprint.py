"""A fingerprint of one function, so that a curve is reused exactly as long as the function stays the same."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from penstock.dataflow.code_location import is_installed


def function_fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of the code of a function, of the values that it encloses, and of the functions that it uses.

    Functions of installed packages, comments and line numbers do not count.
    """
    return hashlib.sha256("\n".join(_parts(function, set())).encode()).hexdigest()[:16]


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield texts that describe a value completely and are the same in every process."""
    value = getattr(value, "__func__", value)  # a method
    if id(value) in seen:
        return
    if isinstance(value, types.FunctionType):
        seen.add(id(value))
        yield from _code_parts(value.__code__)
        yield f"{value.__defaults__!r} {value.__kwdefaults__!r}"
        for cell in value.__closure__ or ():
            yield from _parts(cell.cell_contents, seen)
        for name in sorted(_names(value.__code__)):
            used = value.__globals__.get(name)
            if used is not None and not isinstance(used, types.ModuleType):
                yield name
                yield from _parts(used, seen)
    elif isinstance(value, functools.partial):
        yield from _parts(value.func, seen)
        yield f"{value.args!r} {sorted(value.keywords.items())!r}"
    elif isinstance(value, type):
        seen.add(id(value))
        yield value.__qualname__
        if _is_own(value):
            for name, member in sorted(vars(value).items()):
                if isinstance(member, types.FunctionType):
                    yield name
                    yield from _parts(member, seen)
    elif _is_own(type(value)):  # an object of the user, perhaps callable
        seen.add(id(value))
        yield from _parts(type(value), seen)
        for name, attribute in sorted(getattr(value, "__dict__", {}).items()):
            yield name
            yield from _parts(attribute, seen)
    else:
        yield _shown(value)


def _code_parts(code: types.CodeType) -> Iterator[str]:
    yield f"{code.co_code.hex()} {code.co_names!r} {code.co_varnames!r}"
    for constant in code.co_consts:
        yield from _code_parts(constant) if isinstance(constant, types.CodeType) else [_shown(constant)]


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _is_own(kind: type) -> bool:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return file is not None and not is_installed(file)


def _shown(value: Any) -> str:
    """Return a text without addresses in memory, and with sets in a fixed order."""
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(_shown, value)))}}}"
    text = repr(value)
    return type(value).__qualname__ if " at 0x" in text else text
