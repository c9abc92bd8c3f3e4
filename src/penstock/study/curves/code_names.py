"""The names that compiled code uses, the modules that it imports, and which of them are the user's own."""

from __future__ import annotations

import dis
import importlib.util
import types
from collections.abc import Iterator
from functools import cache

from penstock.dataflow.code_location import is_installed


def code_names(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in this code and in the functions that it defines.

    >>> code = compile("def f(row): return helpers.g(row)", "flow.py", "exec")
    >>> sorted(code_names(code))
    ['f', 'g', 'helpers']
    """
    return frozenset(code.co_names).union(*map(code_names, _inner(code)))


def imported_modules(code: types.CodeType, package: str | None) -> list[str]:
    """Return the modules that this code imports when it runs. `package` resolves relative imports.

    >>> code = compile("def f(row):\\n    from . import near\\n    import os.path", "flow.py", "exec")
    >>> imported_modules(code, "shop")
    ['os', 'os.path', 'shop', 'shop.near']
    """
    return sorted(set(_imported(code, package)))


def _imported(code: types.CodeType, package: str | None) -> Iterator[str]:
    instructions = list(dis.get_instructions(code))
    for before, names, instruction in zip(instructions, instructions[1:], instructions[2:], strict=False):
        if instruction.opname != "IMPORT_NAME":
            continue
        name = instruction.argval
        level = before.argval if isinstance(before.argval, int) else 0
        if level:
            name = importlib.util.resolve_name("." * level + name, package) if package else ""
        parts = name.split(".") if name else []
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
        if name and isinstance(names.argval, tuple):  # a name behind "from ... import" may be a module as well
            yield from (f"{name}.{imported}" for imported in names.argval if imported != "*")
    for inner in _inner(code):
        yield from _imported(inner, package)


def is_of_package(file: str | None, module: str | None, package: str) -> bool:
    """Return whether code belongs to no installed package, or to `package`, whose function is examined.

    Args:
        file: The source file. None: determine it from the module without loading it.
        module: The name of the module.
        package: First part of the name of the module of the examined function.
    """
    if file is None:
        file = _file_of(module) if module and module != "__main__" else None
        if file is None:
            return module == "__main__"
    is_typed = file.startswith("<") and not file.startswith("<frozen")  # in an interpreter
    return is_typed or not is_installed(file) or (module or "").partition(".")[0] == package


@cache
def _file_of(module: str) -> str | None:
    """Return the source file or the folder of a module, or None if there is no such module or it has neither."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())  # a package without __init__.py has only folders
    return spec.origin if spec.has_location else folders[0] if folders else None


def _inner(code: types.CodeType) -> list[types.CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
