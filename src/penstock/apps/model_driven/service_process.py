"""An HTTP service for blobs and records, for one process of its own: `python service_process.py '{"latency_ms": 20}'`.

It listens on a free port of the loopback interface, prints the port, and ends when its standard input ends, so it never
outlives the process that started it. It uses the standard library only and no other file, so it starts at once.

`GET /blob/<name>` and `GET /record/<id>` return bytes that depend on the name and on the sizes only.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass

_LINE_BYTES = 8_192  # the longest line of a request


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """The latency and the limits of the service. A limit applies to all clients together."""

    latency_ms: float = 20.0  # delay of each response, before its first byte
    bandwidth_bytes_per_s: float | None = None  # total of all responses; None: no limit
    requests_per_s: float | None = None  # further requests are refused with status 503; None: no limit
    blob_bytes: int = 65_536
    record_columns: int = 20


@functools.lru_cache(maxsize=256)
def blob(name: str, size: int) -> bytes:
    """Return the content of a blob.

    >>> len(blob("7", 1000)), blob("7", 8) == blob("8", 8)
    (1000, False)
    """
    return hashlib.shake_256(name.encode()).digest(size)


def record(id_: int, columns: int) -> dict[str, int]:
    """Return a record of the table.

    >>> record(3, 2)
    {'id': 3, 'c0': 3, 'c1': 7}
    """
    return {"id": id_, **{f"c{column}": (id_ * (column + 1) + column) % 1_000 for column in range(columns)}}


class Service:
    """The limits, shared by all connections."""

    def __init__(self, limits: ServiceLimits) -> None:
        self.limits = limits
        self._sent_at_s = 0.0  # when the responses so far have been sent
        self._next_s = 0.0  # when the next request is due, if requests arrive as fast as they may

    def admits(self, now_s: float) -> bool:
        """Return whether a request may be processed. A second's worth of requests may arrive at once."""
        rate = self.limits.requests_per_s
        if rate is None:
            return True
        due_s = max(self._next_s, now_s - 1.0)
        if due_s > now_s:
            return False
        self._next_s = due_s + 1.0 / rate
        return True

    def delay_s(self, size: int, now_s: float) -> float:
        """Return after which time a response of this size has been sent."""
        rate = self.limits.bandwidth_bytes_per_s
        if rate is not None:
            self._sent_at_s = max(self._sent_at_s, now_s) + size / rate
        return self.limits.latency_ms / 1e3 + max(0.0, self._sent_at_s - now_s)

    def response(self, path: str) -> tuple[str, bytes]:
        kind, _, name = path.strip("/").partition("/")
        if kind == "blob" and name:
            return "200 OK", blob(name, self.limits.blob_bytes)
        if kind == "record" and name.isdecimal():
            return "200 OK", json.dumps(record(int(name), self.limits.record_columns)).encode()
        return "404 Not Found", b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        clock = asyncio.get_running_loop()
        try:
            while request := await reader.readline():
                while (await reader.readline()).strip():
                    pass  # headers
                path = request.split()[1].decode()
                if self.admits(clock.time()):
                    status, body = self.response(path)
                    await asyncio.sleep(self.delay_s(len(body), clock.time()))
                else:
                    status, body = "503 Service Unavailable", b""
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (ConnectionError, IndexError, ValueError, asyncio.IncompleteReadError):
            pass  # the client has gone, or it is not an HTTP client
        finally:
            writer.close()


async def _run(limits: ServiceLimits) -> None:
    server = await asyncio.start_server(Service(limits).serve, "127.0.0.1", 0, limit=_LINE_BYTES, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)  # until the parent has ended
    os._exit(0)  # the connections of clients may still be open


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops the run first
    asyncio.run(_run(ServiceLimits(**json.loads(sys.argv[1]))))
