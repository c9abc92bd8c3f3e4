"""The client of the HTTP service, and the process in which the service runs.

The service starts when a client factory is sent to the workers of a run, and ends with the driver. Drawing or checking
a dataflow starts nothing.
"""

from __future__ import annotations

import atexit
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.apps.model_driven import service_process
from penstock.apps.model_driven.service_process import ServiceLimits
from penstock.dataflow.errors import PenstockError

_TIMEOUT_S = 10.0  # for a response
_services: dict[ServiceLimits, RunningService] = {}
_lock = threading.Lock()


class RunningService:
    """The service in a child process. It ends with this process, or with `close`."""

    def __init__(self, limits: ServiceLimits) -> None:
        command = [sys.executable, str(Path(service_process.__file__)), json.dumps(asdict(limits))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        if not port:
            raise PenstockError(f"The HTTP service with {limits} did not start; its error is printed above.")
        self.port = int(port)
        atexit.register(self.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        atexit.unregister(self.close)
        self._process.communicate()  # closes its standard input and waits for its end


def running_service(limits: ServiceLimits) -> RunningService:
    """Return the service of this process with these limits, and start it if it does not run."""
    with _lock:
        service = _services.get(limits)
        if service is None or not service.is_running:
            service = _services[limits] = RunningService(limits)
        return service


class ServiceClient:
    """Connections to the service. Each is used by one call after the other, so there are as many as calls in flight."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def get(self, path: str) -> bytes:
        """Return the content of a path.

        Raises:
            ConnectionError: The service refuses the request or cannot be reached.
        """
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionError(f"GET {path}: {error!r}") from error
        self._release(connection)
        if response.status != http.HTTPStatus.OK:
            raise ConnectionError(f"GET {path}: {response.status} {response.reason}")
        return content

    def close(self) -> None:
        """Close the idle connections. A connection in use is closed when its call ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _release(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


@dataclass(frozen=True, slots=True)
class ClientFactory:
    """Creates the client of a worker. Serialising it starts the service, so a worker gets the port of a running one."""

    limits: ServiceLimits

    def __call__(self) -> ServiceClient:
        return ServiceClient(running_service(self.limits).port)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return RemoteClientFactory, (running_service(self.limits).port,)


@dataclass(frozen=True, slots=True)
class RemoteClientFactory:
    """A client factory in a worker."""

    port: int

    def __call__(self) -> ServiceClient:
        return ServiceClient(self.port)
