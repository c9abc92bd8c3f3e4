"""Fingerprints of an operator, of its input and of a function: a curve is reused while its operator stays the same."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.operator_class import PortOperator
from penstock.dataflow.operators import Operator, RowFunction
from penstock.study.curves.code_names import code_names, imported_modules, is_of_package

_MEMBERS_OF_EVERY_CLASS = frozenset({"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__"})


def operator_fingerprint(operator: Operator) -> str:
    """Return a hash of an operator's function and of its declaration, without the number of threads."""
    declared = [("kind", operator.kind), ("keys", operator.keys), ("output_mode", operator.output_mode)]
    function: Any = operator.fn
    if isinstance(function, RowFunction):
        declared.append(("schema", function.schema))
        if function.calls is not None:
            names = [field.name for field in fields(function.calls) if field.name != "threads"]
            declared += [(name, getattr(function.calls, name)) for name in names]
        function = function.fn
    seen = _Parts(function)
    parts = [*seen.of(function), *(part for pair in declared for part in seen.of(pair))]
    return _hash(parts)


def input_fingerprint(flow: Dataflow, name: str) -> str:
    """Return a hash of the sources and operators from which rows reach an operator, without rates and threads."""
    parts: list[str] = []
    for operator in flow.with_only_input_of(name).operators:
        parts += [operator.name, repr(operator.inputs)]
        if operator.source is not None:
            declared = {field.name: getattr(operator.source, field.name) for field in fields(operator.source)}
            declared.pop("rows_per_s", None)
            parts += _Parts(declared.get("fn")).of(declared)
        elif isinstance(operator.fn, PortOperator):
            parts += _Parts(operator.fn.instance).of([operator.fn.instance, dict(operator.fn.config)])
        else:
            parts.append(operator_fingerprint(operator))
    return _hash(parts)


def function_fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of the code of a function, of the values that it encloses, and of the functions that it uses.

    Functions of other installed packages, comments and line numbers do not count.
    """
    return _hash(_Parts(function).of(function))


def _hash(parts: Iterator[str] | list[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class _Parts:
    """Texts that describe values completely and are the same in every process."""

    def __init__(self, function: Any) -> None:
        self._package = (getattr(function, "__module__", None) or "").partition(".")[0]
        self._seen: dict[int, Any] = {}  # by id; holds the values, so that no id is used again
        self._open: set[int] = set()  # ids of the containers around the current value

    def of(self, value: Any) -> Iterator[str]:
        if isinstance(value, list | tuple | set | frozenset | Mapping | types.CodeType):
            yield from self._content(value)
            return
        if isinstance(value, str | bytes | int | float | complex | None):
            yield repr(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, types.MethodType):
            yield from self._all(value.__func__, value.__self__)
        elif isinstance(value, staticmethod | classmethod):
            yield from self.of(value.__func__)
        elif isinstance(value, property):
            yield from self._all(value.fget, value.fset)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, functools.partial):
            yield from self._all(value.func, value.args, value.keywords)
        elif isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, type):
            yield from self._class(value)
        elif self._is_own(type(value)):  # an object of the user, perhaps callable
            yield from self._all(type(value), _attributes(value))
        else:
            yield _shown(value)

    def _content(self, value: Any) -> Iterator[str]:
        """Yield the type and the parts of a container or a code object. Equal values yield the same text."""
        if id(value) in self._open:  # it contains itself
            return
        self._open.add(id(value))
        yield f"{type(value).__qualname__}"
        if isinstance(value, types.CodeType):
            yield f"{value.co_code.hex()} {value.co_names!r} {value.co_varnames!r}"
            yield from self._all(*value.co_consts)
        elif isinstance(value, Mapping):
            yield from self._all(*(part for item in value.items() for part in item))
        elif isinstance(value, set | frozenset):
            yield from sorted(" ".join(self.of(item)) for item in value)
        else:
            yield f"{len(value)}"
            yield from self._all(*value)
        self._open.discard(id(value))

    def _all(self, *values: Any) -> Iterator[str]:
        for value in values:
            yield from self.of(value)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        if not is_of_package(function.__code__.co_filename, function.__module__, self._package):
            yield f"{function.__module__}.{function.__qualname__}"
            return
        yield from self.of(function.__code__)
        yield from self._all(function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            yield from self.of(cell.cell_contents)
        names = code_names(function.__code__)
        for name in sorted(names):
            if name in function.__globals__:
                yield name
                yield from self._used(function.__globals__[name], names)
        for name in imported_modules(function.__code__, function.__globals__.get("__package__")):
            if is_of_package(None, name, self._package):
                yield from self._used(_imported(name), names)

    def _used(self, value: Any, names: frozenset[str]) -> Iterator[str]:
        """Yield a global value, or of a module the values with names that the code contains."""
        if not isinstance(value, types.ModuleType):
            yield from self.of(value)
            return
        yield value.__name__
        if is_of_package(getattr(value, "__file__", None), value.__name__, self._package):
            for name in sorted(names & vars(value).keys()):
                member = vars(value)[name]
                if isinstance(member, types.ModuleType) and member.__name__.startswith(f"{value.__name__}."):
                    yield from self._used(member, names)
                elif not isinstance(member, types.ModuleType):
                    yield name
                    yield from self.of(member)

    def _class(self, kind: type) -> Iterator[str]:
        yield f"{kind.__module__}.{kind.__qualname__}"
        if self._is_own(kind):
            for name, member in sorted(vars(kind).items()):
                if name not in _MEMBERS_OF_EVERY_CLASS and not isinstance(member, types.MemberDescriptorType):
                    yield name
                    yield from self.of(member)
            yield from self._all(*kind.__bases__)

    def _is_own(self, kind: type) -> bool:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        return is_of_package(file, kind.__module__, self._package)


def _imported(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # the function itself may expect that
        return None


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    named = {name: getattr(value, name) for name in slots if name not in ("__dict__", "__weakref__")}
    return dict(sorted((named | getattr(value, "__dict__", {})).items()))


def _shown(value: Any) -> str:
    """Return a text without addresses in memory; a value with a buffer, such as an array, by all its bytes."""
    try:
        content = hashlib.sha256(memoryview(value).tobytes()).hexdigest()
    except (TypeError, ValueError, NotImplementedError):
        content = ""
    text = repr(value)
    return f"{type(value).__qualname__} {content}" if content or " at 0x" in text else text
