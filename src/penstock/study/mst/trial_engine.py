"""An engine for the time of a trial."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.dataflow.errors import PenstockError
from penstock.engines.ports import RunnableEngine


@contextmanager
def on_trial(engine: RunnableEngine) -> Iterator[RunnableEngine]:
    """Started, and stopped however the trial ends."""
    engine.start()
    try:
        yield engine
    except KeyboardInterrupt:
        # Ctrl-C makes PySpark cancel its jobs, so that queries fail while they are drained, and a SIGTERM to the whole
        # group ends the JVM below them: that is no error to tell.
        with suppress(Exception):
            engine.stop()
        raise
    except BaseException:
        engine.stop()
        raise
    engine.stop()


def mended(engine: RunnableEngine, when: str) -> bool:
    """Whether something had to be: a query that ended is started again, as in a run, until that is hopeless."""
    done = engine.recover()
    if (failure := engine.failure()) is not None:
        raise PenstockError(f"the run failed {when}: {failure}")
    return bool(done)
