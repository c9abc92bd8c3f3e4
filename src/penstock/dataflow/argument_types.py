"""Checks of argument types: a wrong type is reported where it is given, in one sentence."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from penstock.dataflow.code_location import written_at
from penstock.dataflow.ddl import Struct
from penstock.dataflow.errors import DataflowError, PenstockError

P = ParamSpec("P")
R = TypeVar("R")

_NAMES: dict[Any, str] = {
    float: "a number",
    int: "a whole number",
    str: "a text",
    Struct: "a StructType",
    bool: "True or False",
    Path: "a path",
    None: "None",
    tuple: "a pair",
    collections.abc.Callable: "a function",
    collections.abc.Iterable: "a list",
    collections.abc.Mapping: "a dict",
}


def checked_types(error_type: type[PenstockError]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that raises `error_type` if an argument does not have the type of its annotation.

    Only simple types are checked: numbers, texts, paths, functions, lists and dicts. Values are checked by the function
    itself.

    >>> @checked_types(PenstockError)
    ... def wait(seconds: float, name: str | None = None) -> None: ...
    >>> wait("long")
    Traceback (most recent call last):
    penstock.dataflow.errors.PenstockError: wait() is given seconds='long', which is of type str; give a number.
    >>> wait(1, name=3)
    Traceback (most recent call last):
    penstock.dataflow.errors.PenstockError: wait() is given name=3, which is of type int; give a text or None.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as problem:  # it does not name the function
                raise TypeError(f"{function.__name__}(): {problem}") from None
            for name, value in arguments.items():
                kinds = _kinds(function, name)
                if kinds and not any(_fits(value, kind) for kind in kinds):
                    given = f"{name}={value!r}, which is" if isinstance(value, str | int | float | None) else name
                    wanted = " or ".join(dict.fromkeys(_NAMES[kind] for kind in kinds))
                    declared = arguments.get("name")  # name of an operator
                    subject = f"{function.__name__}({'' if declared in (None, value) else repr(declared)})"
                    raise error_type(f"{subject} is given {given} of type {type(value).__name__}; give {wanted}.")
            return function(*args, **kwargs)

        return checked

    return decorate


@functools.cache
def _kinds(function: Callable[..., Any], parameter: str) -> tuple[Any, ...]:
    """Return the types that a parameter accepts; none if one of them is not checked."""
    annotation = inspect.signature(function).parameters[parameter].annotation
    try:
        hint = eval(annotation, function.__globals__) if isinstance(annotation, str) else annotation
    except NameError:  # imported for the type checker only
        return ()
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(_kind(member) for member in members)
    return kinds if all(kind in _NAMES for kind in kinds) else ()


def _kind(hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if hint is types.NoneType:
        return None
    if origin is Literal:
        return str
    if origin is collections.abc.Sequence:
        return collections.abc.Iterable
    return hint if origin is None else origin


def _fits(value: object, kind: Any) -> bool:
    if kind is None:
        return value is None
    if kind is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if kind is tuple:
        return isinstance(value, tuple | list)
    if kind is collections.abc.Callable:
        return callable(value)
    if kind is collections.abc.Iterable:
        return isinstance(value, Iterable)
    if kind is collections.abc.Mapping:
        return isinstance(value, Mapping)
    return isinstance(value, kind)


def check_parameters(function: Callable[..., Any], subject: str, *given: str) -> None:
    """Raise DataflowError if a function of the user cannot be called with these positional arguments.

    Otherwise the error would occur in a worker, after the start.
    """
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise DataflowError(
            f"{subject} is given a function{written_at(function)} that takes other arguments; it must take "
            f"{' and '.join(given)}."
        ) from None
    except ValueError:  # a builtin without a signature
        return
