"""A child process that cannot outlive whoever started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def to_parent() -> Callable[[], None] | None:
    """For a child's `preexec_fn`: the kernel ends it when this process ends, in whatever way; it survives `exec`.

    Only Linux does; None elsewhere.
    """
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl  # loaded here: a child does as little as it can before `exec`

    def tied() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it has ended already, before it could be said
            os._exit(1)

    return tied
