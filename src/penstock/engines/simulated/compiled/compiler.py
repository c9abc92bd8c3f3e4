"""Decorators for functions that numba compiles. Import this module only when a simulation is about to run: it is slow.

Numba caches compiled functions on disk and invalidates an entry when the function's own file changes. A compiled loop
also contains the functions that it calls from other files. `discard_stale_cache` therefore deletes all entries when any
source changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

from penstock.engines import batch_size, scheduling

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function that allocates no arrays; cache the result on disk.

    Without allocations no reference counts are needed. Together with inlining, this makes the loops five times faster.
    """
    compiler = njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)  # type: ignore[call-overload]
    return cast(Function, compiler(function))


def compiled_with_arrays(function: Function) -> Function:
    """Compile a function that allocates arrays; cache the result on disk."""
    return cast(Function, njit(cache=True, error_model="numpy")(function))


def discard_stale_cache(package: Path, *shared: Path) -> None:
    """Delete the compiled functions of `package` unless they were compiled from the current sources.

    `shared` are modules outside the package whose functions are compiled too.
    """
    stamp = package / "__pycache__" / "compiled-sources.sha256"
    sources = b"".join(file.read_bytes() for file in (*sorted(package.rglob("*.py")), *shared))
    digest = hashlib.sha256(sources).hexdigest()
    try:
        if stamp.exists() and stamp.read_text() == digest:
            return
        stamp.parent.mkdir(exist_ok=True)
        for suffix in ("nbi", "nbc"):
            cached = list(package.rglob(f"__pycache__/*.{suffix}"))
            for module in shared:
                cached += module.parent.glob(f"__pycache__/{module.stem}.*.{suffix}")
            for file in cached:
                file.unlink(missing_ok=True)
        stamp.write_text(digest)
    except OSError:  # an installed package that is read-only does not change either
        return


discard_stale_cache(Path(__file__).parents[1], Path(batch_size.__file__), Path(scheduling.__file__))
next_invocation = compiled(scheduling.next_invocation)
