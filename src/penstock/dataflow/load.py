"""Load a dataflow from a Python file or module: `wordcount.py`, `wordcount.py:flow`, `my.package:make_flow`."""

from __future__ import annotations
import __future__

import ast
import functools
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from penstock.dataflow.code_location import failing_line, is_installed
from penstock.dataflow.dataflow import Dataflow
from penstock.dataflow.errors import PenstockError
from penstock.dataflow.flow_arguments import split_arguments
from penstock.dataflow.operator_class import PortOperator

MODULE_PREFIX = "_penstock_flow_"
DEFAULT_NAME = "flow"
Loaded = TypeVar("Loaded")
# Asked after an exception in code of the user: whether its cause is removed, so that the code is to be run again.
Remedy = Callable[[Exception], bool]


class LoadError(PenstockError):
    """The file or module does not contain a dataflow."""


def load(spec: str, remedy: Remedy | None = None) -> Dataflow:
    """Return the dataflow that `FILE[:name]` or `module[:name]` names.

    `name` is a Dataflow, a function that returns one, or a module with `flow`. It defaults to `flow`, or to the only
    Dataflow in the module. A function may have arguments with literal values: `module:name(rows=1000)`.

    A file is loaded under the private module name `_penstock_flow_<stem>`, which a worker cannot import. Its functions
    and those of modules in the same folder must therefore be pickled by value: an engine that pickles registers each
    module of `modules_by_value()` with `cloudpickle.register_pickle_by_value`.

    The statements of a file are run one by one. If one of them raises an exception and `remedy` removes the cause, only
    this statement is run again.

    Raises:
        LoadError: There is no such file, module or dataflow, or the code raises an exception.
    """
    spec, arguments = split_arguments(spec)
    place, name = _split(spec)
    module = _from_file(Path(place), remedy) if _is_file(place) else _from_name(place, remedy)
    chosen = name or _default_name(module, place)
    try:
        value = getattr(module, chosen)
    except AttributeError:
        raise LoadError(f"'{place}' has no '{chosen}'; {_candidates(module)}") from None
    if isinstance(value, ModuleType):
        value = getattr(value, DEFAULT_NAME, None)
    if callable(value) and not isinstance(value, Dataflow):
        value = _call(functools.partial(value, **arguments) if arguments else value, chosen, place, remedy)
    elif arguments:
        raise LoadError(f"'{chosen}' of '{place}' is not a function, so it takes no arguments; omit them.")
    if not isinstance(value, Dataflow):
        raise LoadError(
            f"'{chosen}' of '{place}' is {_described(value)}; it must be a Dataflow or a function without arguments "
            "that returns one."
        )
    return value


def place_of(spec: str) -> Path:
    """Return the file of `FILE[:name]`; for `module[:name]` a path that usually does not exist."""
    place, _ = _split(split_arguments(spec)[0])
    return Path(place)


def load_function(spec: str, default: str) -> Callable[..., Any]:
    """Return the function that `FILE[:name]` or `module[:name]` names. `name` defaults to `default`.

    Raises:
        LoadError: There is no such file, module or function.
    """
    place, name = _split(spec)
    module = _from_file(Path(place)) if _is_file(place) else _from_name(place)
    value = getattr(module, name or default, None)
    if not callable(value):
        raise LoadError(f"'{place}' has no function '{name or default}'; name one, such as {place}:{default}.")
    function: Callable[..., Any] = value
    return function


def modules_by_value(flow: Dataflow | None = None) -> tuple[ModuleType, ...]:
    """Return the modules that a worker may be unable to import.

    These are flow files, modules with functions of `flow` that are not installed, and all modules and packages in the
    same folders.
    """
    loaded = {name: module for name, module in list(sys.modules.items()) if getattr(module, "__file__", None)}
    of_functions = {_root(name) for name in _modules_of_functions(flow)} if flow is not None else set()
    own = [
        _folder(module)
        for name, module in loaded.items()
        if name.startswith(MODULE_PREFIX) or (name in of_functions and not is_installed(str(module.__file__)))
    ]

    def beside(name: str) -> bool:
        root = loaded.get(_root(name))
        return root is not None and root.__name__ not in ("__main__", "penstock") and _folder(root) in own

    return tuple(module for name, module in loaded.items() if beside(name))


def _modules_of_functions(flow: Dataflow) -> set[str]:
    functions = [
        type(holder.instance) if isinstance(holder, PortOperator) else getattr(holder, "fn", holder)
        for operator in flow.operators
        for holder in (operator.fn, operator.source, operator.sink)
        if holder
    ]
    return {str(getattr(fn, "__module__", "")) for fn in functions}


def _root(name: str) -> str:
    return name.partition(".")[0]


def _folder(root: ModuleType) -> Path:
    """Return the folder that contains a top-level module or package."""
    file = Path(str(root.__file__))
    return file.parent.parent if file.stem == "__init__" else file.parent


def _split(spec: str) -> tuple[str, str | None]:
    if Path(spec).exists():
        return spec, None
    place, colon, name = spec.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (spec.rstrip(":"), None)


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or Path(place).exists()


def _from_file(file: Path, remedy: Remedy | None = None) -> ModuleType:
    if file.is_dir():
        raise LoadError(f"'{file}' is a directory; give a Python file.")
    if not file.is_file():
        raise LoadError(f"There is no file '{file}'; give a Python file or the name of a module.")
    file = file.resolve()
    name = MODULE_PREFIX + "".join(character if character.isalnum() else "_" for character in file.stem)
    if file.suffix != ".py":
        raise LoadError(f"'{file}' is not a Python file; give a file whose name ends in .py.")
    spec = ModuleSpec(name, SourceFileLoader(name, str(file)), origin=str(file))
    spec.has_location = True  # sets __file__
    module = importlib.util.module_from_spec(spec)
    # Modules in the same folder can be imported, like with `python FILE`.
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    sys.modules[name] = module
    for code in _explained(partial(_statements, file), str(file), file):
        _explained(partial(exec, code, vars(module)), str(file), file, remedy)
    return module


def _statements(file: Path) -> list[CodeType]:
    """Compile each statement of a file.

    Cached bytecode is not used: Python trusts it by the time and size of a file, so it can miss an edit within the same
    second.
    """
    tree = ast.parse(file.read_bytes(), str(file))
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for feature in node.names:
                flags |= getattr(__future__, feature.name).compiler_flag
    return [
        compile(ast.Module([statement], []), str(file), "exec", flags=flags, dont_inherit=True)
        for statement in tree.body
    ]


def _from_name(name: str, remedy: Remedy | None = None) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # like `python -m`
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise LoadError(f"There is no file and no module '{name}'; give a Python file such as wordcount.py.")
    return _explained(lambda: importlib.import_module(name), name, Path(spec.origin or name), remedy)


def _default_name(module: ModuleType, place: str) -> str:
    if hasattr(module, DEFAULT_NAME):
        return DEFAULT_NAME
    names = {id(value): name for name, value in reversed(vars(module).items()) if isinstance(value, Dataflow)}
    if len(names) > 1:
        listed = sorted(names.values())
        raise LoadError(
            f"'{place}' has several dataflows ({', '.join(listed)}); name one, such as {place}:{listed[0]}."
        )
    return next(iter(names.values()), DEFAULT_NAME)


def _candidates(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, Dataflow)]
    if names:
        return f"it has the dataflow{'s' * (len(names) > 1)} {', '.join(names)}."
    return 'declare one, such as flow = penstock.Dataflow("wordcount").'


def _call(make: Callable[[], Any], name: str, place: str, remedy: Remedy | None) -> Any:
    try:
        needed = [
            parameter.name
            for parameter in inspect.signature(make).parameters.values()
            if parameter.default is parameter.empty and parameter.kind not in (2, 4)  # neither *args nor **kwargs
        ]
    except (TypeError, ValueError):  # a builtin without a signature
        needed = []
    if needed:
        raise LoadError(
            f"'{name}' of '{place}' needs arguments ({', '.join(needed)}); it must be a Dataflow or a function "
            "without arguments that returns one."
        )
    file = Path(inspect.getsourcefile(make) or place) if inspect.isfunction(make) else None
    return _explained(make, place, file, remedy)


def _explained(do: Callable[[], Loaded], place: str, file: Path | None, remedy: Remedy | None = None) -> Loaded:
    """Run code of the user. An exception becomes a LoadError that names the line of the user's code."""
    try:
        return do()
    except SyntaxError as error:
        line = "" if error.lineno is None else f", line {error.lineno}"
        text = f": {error.text.strip()}" if error.text else ""
        raise LoadError(f"'{error.filename or place}'{line}: {error.msg}{text}") from None
    except Exception as error:
        if isinstance(error, OSError) and file is not None and error.filename == file:
            raise LoadError(f"Cannot read '{place}': {error.strerror}; check its permissions.") from None
        if remedy is not None and remedy(error):
            return _explained(do, place, file)
        raise _load_error(error, place, file) from error
    except SystemExit as error:
        raise _load_error(error, place, file) from error


def _load_error(error: BaseException, place: str, file: Path | None) -> LoadError:
    line = failing_line(error, str(file))
    where = f"'{line.filename}', line {line.lineno}: {line.line}: " if line is not None else f"'{place}': "
    kind = "" if isinstance(error, PenstockError) else f"{type(error).__name__}: "
    advice = f"; install it for {sys.executable}" if isinstance(error, ModuleNotFoundError) else ""
    return LoadError(f"{where}{kind}{error}{advice}")


def _described(value: object) -> str:
    return f"{value!r}" if isinstance(value, int | float | str | None) else f"of type {type(value).__name__}"
