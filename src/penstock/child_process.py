"""Child processes that end with the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

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
