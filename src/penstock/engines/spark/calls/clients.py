"""The clients of a worker process: each is created once, used by all calls of an operator, and closed.

A client is closed in one of three cases: no task has used it for some seconds, a call has failed (Spark ends the worker
process after an exception), or Spark asks the worker process to end. Spark ends an idle worker after a minute by
SIGKILL; its clients have been closed by then. If Spark kills a worker in the middle of a task, the operating system
closes the connections.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.engines.spark.calls.event_loop import EventLoop

IDLE_S = 10.0  # after its last task a client is closed
_CLOSE_TIMEOUT_S = 5.0
CLOSER_NAME = "penstock idle clients"


class Client:
    """The client of one operator in one worker process, and the event loop to which an asynchronous one belongs."""

    def __init__(self, factory: Callable[[], Any] | None, *, is_async: bool) -> None:
        self.events = EventLoop() if is_async else None
        self.value: Any = None
        self.users = 0
        self.unused_since_s = time.monotonic()
        try:
            if factory is not None:
                self.value = factory() if self.events is None else self.events.run(_created(factory))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the client with its method `aclose` or `close`, if it has one, and end the event loop."""
        value, self.value = self.value, None
        close = getattr(value, "aclose", None) or getattr(value, "close", None)
        with contextlib.suppress(Exception):  # the rows are processed, and nobody could act on the error
            if close is not None and self.events is None:
                close()
            elif close is not None and self.events is not None:
                self.events.run(_closed(close), _CLOSE_TIMEOUT_S)
        if self.events is not None:
            self.events.close()


class Clients:
    """The clients of this process by key. A key is unique to one start of a query."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._clients: dict[str, Client] = {}
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._closer: threading.Thread | None = None

    @contextlib.contextmanager
    def use(self, key: str, factory: Callable[[], Any] | None, *, is_async: bool) -> Iterator[Client]:
        """Provide the client of this key, and create it if there is none. An exception closes it."""
        with self._lock:
            client = self._clients.get(key)
            if client is None:
                close_before_end(self)
                client = self._clients[key] = Client(factory, is_async=is_async)
            client.users += 1
            if self._closer is None:
                self._closer = threading.Thread(target=self._close_unused, name=CLOSER_NAME, daemon=True)
                self._closer.start()
        try:
            yield client
        except BaseException:
            with self._lock:
                self._clients.pop(key, None)
            client.close()
            raise
        finally:
            client.users -= 1
            client.unused_since_s = time.monotonic()

    def close(self) -> None:
        """Close all clients, also those in use."""
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _close_unused(self) -> None:
        while True:
            time.sleep(self._idle_s / 4)
            now = time.monotonic()
            with self._lock:
                unused = [
                    key
                    for key, client in self._clients.items()
                    if not client.users and now - client.unused_since_s >= self._idle_s
                ]
                closed = [self._clients.pop(key) for key in unused]
                if not self._clients:
                    self._closer = None
            for client in closed:
                client.close()
            if self._closer is None:
                return


CLIENTS = Clients()


def worker_clients() -> Clients:
    """Return the clients of this process. A task's function is pickled with the global values that it names."""
    return CLIENTS


def close_before_end(clients: Clients) -> None:
    """Close the clients when this process is asked to end. Spark's daemon asks its workers by SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set a handler
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, lambda received, _: _end(clients, received))


def _end(clients: Clients, number: int) -> None:
    clients.close()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


async def _created(factory: Callable[[], Any]) -> Any:
    value = factory()
    return await value if inspect.isawaitable(value) else value


async def _closed(close: Callable[[], Any]) -> None:
    result = close()
    if inspect.isawaitable(result):
        await result
