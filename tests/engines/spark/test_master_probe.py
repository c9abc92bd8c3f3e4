"""Addresses that accept connections but are no Spark masters are refused in one sentence, without a JVM."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from penstock.dataflow.errors import SparkUnavailableError
from penstock.engines.spark import master_probe


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection on a free port and serve it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            connection, _ = listener.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def silent(connection: socket.socket) -> None:
    while connection.recv(4096):  # until the other side closes
        pass


def web_server(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")


def spark(connection: socket.socket) -> None:
    """Answer as Spark's TransportRequestHandler does to a stream that it does not have."""
    frame = connection.recv(4096)
    length, kind, size = struct.unpack(">qbi", frame[:13])
    assert (length, kind) == (len(frame), 6)
    name, error = frame[13 : 13 + size], b"Stream was not found."
    body = struct.pack(">bi", 8, len(name)) + name + struct.pack(">i", len(error)) + error
    connection.sendall(struct.pack(">q", len(body) + 8) + body)


@pytest.mark.parametrize("serve", [silent, web_server, lambda _: None])
def test_a_server_of_another_kind(serve: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_probe, "_TIMEOUT_S", 0.5)
    with server(serve) as address, pytest.raises(SparkUnavailableError) as refusal:
        master_probe.check_reachable(f"spark://{address}", {})
    assert str(refusal.value) == (
        f"The Spark master 'spark://{address}' cannot be reached ({address} accepts connections, but is not a Spark "
        "master); start it, or give the address of a running one."
    )


def test_one_of_several_masters_suffices() -> None:
    with server(spark) as address:
        master_probe.check_reachable(f"spark://127.0.0.1:1,{address}", {})


def test_a_master_with_authentication_answers_in_another_way() -> None:
    with server(silent) as address:
        master_probe.check_reachable(f"spark://{address}", {"spark.authenticate": "true"})
