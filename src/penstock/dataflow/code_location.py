"""The line of the user's code that raised an exception."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from traceback import FrameSummary
from types import CodeType, FrameType
from typing import Any

_PENSTOCK = Path(__file__).parents[1]


def failing_line(error: BaseException, file: str | None = None) -> FrameSummary | None:
    """Return the innermost frame of an exception in `file`, or in any file that is not part of an installed package.

    A function of the user often calls a library that raises the exception. The line of the user's code explains more
    than the line in the library. None if no frame is code of the user.
    """
    return _innermost(traceback.extract_tb(error.__traceback__), file)


def waiting_line(frame: FrameType, file: str | None = None) -> FrameSummary | None:
    """Return the innermost line of the user's code, in the same sense, that a running frame has reached."""
    return _innermost(traceback.extract_stack(frame), file)


def _innermost(frames: Iterable[FrameSummary], file: str | None) -> FrameSummary | None:
    own = [frame for frame in frames if frame.filename == file or not is_installed(frame.filename)]
    return own[-1] if own else None


def source_file(function: Any) -> str | None:
    """Return the file in which a function, or the method of a callable object, is written; None for other objects."""
    code = _code(function)
    return None if code is None else code.co_filename


def written_at(function: Any) -> str:
    """Return where a function is written, such as ' (flow.py, line 7)'; empty for an object without source code."""
    code = _code(function)
    return "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"


@cache
def is_installed(file: str) -> bool:
    """Return whether a source file belongs to Python, to Penstock or to another installed package."""
    return file.startswith("<") or any(Path(file).is_relative_to(place) for place in (*_places(), _PENSTOCK))


def _code(function: Any) -> CodeType | None:
    function = getattr(function, "func", function)  # functools.partial
    if not hasattr(function, "__code__") and callable(function):
        function = function.__call__
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


@cache
def _places() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(place) for place in map(sysconfig.get_path, names)})
