"""The supervisor of a local broker: a process between the starting process and the JVM.

The supervisor ensures that the JVM ends when it is no longer needed. Its standard input is a pipe from the starting
process. When the pipe closes, that process has ended, and the supervisor stops the broker. When it reads DETACH,
the broker continues without that process. The JVM ends with the supervisor (on Linux the kernel ensures this).
SIGTERM stops both.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import FrameType

from penstock import child_process

DETACH = b"detach\n"
_STOP_TIMEOUT_S = 20.0


class _Stopped(BaseException):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def supervise(command: list[str]) -> int:
    """Run the command until it ends, the starting process ends, or SIGTERM is received; return the exit code."""
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the starting process, which closes the pipe
    jvm = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=child_process.end_with_parent())
    try:
        pipe: list[int] = [0]
        while jvm.poll() is None:
            ready, _, _ = select.select(pipe, [], [], 0.2)
            if ready:
                if os.read(0, 64) != DETACH:
                    break
                pipe = []
    except _Stopped:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            jvm.terminate()
        try:
            jvm.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
    return 0


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
