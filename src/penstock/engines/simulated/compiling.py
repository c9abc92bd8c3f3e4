"""Compiled loops: numba's decorator with one set of options. Import it only where a simulation is about to run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

Loop = TypeVar("Loop", bound=Callable[..., Any])


def compiled(loop: Loop) -> Loop:
    """Kept on disk, so that only the first run on a machine waits for the compiler.

    The loops are given their arrays and make none, so nothing is to be counted for its release: that, and having one
    loop in one piece, makes them five times as fast.
    """
    return cast(Loop, njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)(loop))


def compiled_with_arrays(function: Loop) -> Loop:
    """For functions that make arrays."""
    return cast(Loop, njit(cache=True, error_model="numpy")(function))


def forget_stale_loops(package: Path) -> None:
    """Deletes what was compiled from other sources than these.

    A compiled loop holds those that it calls, also from other files, but is looked up by the age of its own file.
    """
    kept = package / "__pycache__"
    stamp = kept / "loops.stamp"
    sources = [file.read_bytes() for file in sorted(package.glob("*.py"))]
    # Records and kinds are compiled in as well.
    found = hashlib.sha256(b"".join(one for one in sources if b"@compiled" in one or b" = range(" in one)).hexdigest()
    try:
        if stamp.exists() and stamp.read_text() == found:
            return
        kept.mkdir(exist_ok=True)
        for file in (*kept.glob("*.nbi"), *kept.glob("*.nbc")):
            file.unlink(missing_ok=True)
        stamp.write_text(found)
    except OSError:  # a package that cannot be written to does not change file by file either
        return


forget_stale_loops(Path(__file__).parent)
