"""Addresses that accept connections but are no Spark masters are refused in one sentence, without a JVM."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

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


def test_several_silent_addresses_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address only closes its connection when all four have been asked, so asking in turn would never end."""
    all_asked = threading.Barrier(4)

    def closes_after_the_others(connection: socket.socket) -> None:
        connection.recv(4096)
        all_asked.wait(timeout=60)

    monkeypatch.setattr(master_probe, "_TIMEOUT_S", 60.0)
    with ExitStack() as servers:
        addresses = [servers.enter_context(server(closes_after_the_others)) for _ in range(4)]
        with pytest.raises(SparkUnavailableError) as refusal:
            master_probe.check_reachable("spark://" + ",".join(addresses), {})
    assert not all_asked.broken
    reasons = ", ".join(f"{address} accepts connections, but is not a Spark master" for address in addresses)
    assert f"({reasons})" in str(refusal.value)


@pytest.mark.parametrize("name", ["spark.ssl.enabled", "spark.authenticate", "spark.network.crypto.enabled"])
def test_a_protection_that_is_switched_off_does_not_skip_the_probe(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The given property replaces that of the file, as in Spark."""
    (tmp_path / "spark-defaults.conf").write_text(f"{name} true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with server(web_server) as address, pytest.raises(SparkUnavailableError):
        master_probe.check_reachable(f"spark://{address}", {name: "false"})


@pytest.mark.parametrize("line", ["spark.authenticate true", "spark.authenticate=true", "  spark.authenticate : TRUE "])
def test_a_protection_of_the_file_of_defaults(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"# defaults\nspark.app.name a\n{line}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with server(silent) as address:
        master_probe.check_reachable(f"spark://{address}", {})


def test_a_master_with_authentication_answers_in_another_way() -> None:
    with server(silent) as address:
        master_probe.check_reachable(f"spark://{address}", {"spark.authenticate": "true"})
