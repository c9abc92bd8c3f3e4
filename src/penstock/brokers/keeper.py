"""The keeper of a broker: a process between its starter and its JVM, so that the JVM never outlives its purpose.

Its standard input is a pipe from the starter. Its end means that the starter is gone, by whatever death, and the broker
is stopped; a word on it lets the broker live on by itself. The JVM in turn dies with the keeper, by the kernel's hand
where there is one for that (Linux), and a SIGTERM to the keeper stops both.
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

LET_GO = b"live on\n"
_PATIENCE_S = 20.0


class _Stopped(BaseException):
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise _Stopped


def keep(command: list[str]) -> int:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the starter, whose end is seen
    jvm = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=child_process.to_parent())
    try:
        pipe: list[int] = [0]
        while jvm.poll() is None:
            ready, _, _ = select.select(pipe, [], [], 0.2)
            if ready:
                said = os.read(0, 64)
                if said != LET_GO:
                    break
                pipe = []
    except _Stopped:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            jvm.terminate()
        try:
            jvm.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
    return 0


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1:]))
