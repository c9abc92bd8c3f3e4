"""Start and stop the engine of a trial, and recover its queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import RunnableEngine


@contextmanager
def started(engine: RunnableEngine) -> Iterator[RunnableEngine]:
    """Start the engine, and stop it however the trial ends."""
    engine.start()
    try:
        yield engine
    except KeyboardInterrupt:
        # Ctrl-C makes PySpark cancel its jobs, and a SIGTERM to the process group ends the JVM. Errors while stopping
        # are a consequence and are not reported.
        with suppress(Exception):
            engine.stop()
        raise
    except BaseException:
        engine.stop()
        raise
    engine.stop()


def recovered(engine: RunnableEngine, when: str) -> bool:
    """Restart failed queries; return whether there were any. Raises PenstockError if the run cannot continue."""
    recoveries = engine.recover()
    if (failure := engine.failure()) is not None:
        raise PenstockError(f"The run failed {when}: {failure}")
    return bool(recoveries)
