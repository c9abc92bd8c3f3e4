"""Child processes that end with the process that started them."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> Callable[[], None] | None:
    """Return a `preexec_fn` for `subprocess.Popen`: the kernel kills the child when this process ends in any way.

    The setting survives `exec`. Only Linux supports it; the result is None elsewhere.
    """
    if sys.platform != "linux":
        return None
    # Loaded here, because a child must do as little as possible between `fork` and `exec`.
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def set_death_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the signal was set
            os._exit(1)

    return set_death_signal


@contextlib.contextmanager
def stderr_of_children(file: Path) -> Iterator[None]:
    """Send the stderr of child processes that start within this context to a file. This process keeps its own stderr.

    Children inherit the file descriptor 2. Within the context `sys.stderr` uses a copy of the original descriptor. The
    copy stays open, because handlers of `logging` may keep it.
    """
    stderr, original = sys.stderr, os.dup(2)
    with file.open("ab") as output:
        os.dup2(output.fileno(), 2)
    try:
        if _uses_descriptor_2(stderr):
            sys.stderr = os.fdopen(os.dup(original), "w", buffering=1, encoding=stderr.encoding, errors="replace")
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        sys.stderr = stderr


def _uses_descriptor_2(stream: object) -> bool:
    try:
        return isinstance(stream, io.TextIOBase) and stream.fileno() == 2
    except OSError:  # not a file, as in a notebook
        return False
