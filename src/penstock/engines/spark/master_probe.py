"""A check that a standalone master answers, before Spark looks for it for a minute."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from penstock.dataflow.errors import SparkUnavailableError

_TIMEOUT_S = 5.0  # for the connection, and again for the answer
# Spark's network protocol: a frame is its length (8 bytes), the type of the message (1 byte) and the message. Any Spark
# process answers the request of a stream that does not exist with a failure that repeats the name of the stream.
_STREAM_REQUEST, _STREAM_FAILURE = 6, 8
_STREAM = b"/jars/penstock-probe"
_PROTECTED = ("spark.authenticate", "spark.network.crypto.enabled", "spark.ssl.enabled", "spark.ssl.rpc.enabled")
_DEFAULT = re.compile(r"^\s*([\w.]+)(?:\s*[=:]\s*|\s+)(\S+)", re.MULTILINE)  # a line of spark-defaults.conf


def check_reachable(master: str, properties: dict[str, str]) -> None:
    """Raise SparkUnavailableError if none of the addresses in 'spark://HOST:PORT,HOST:PORT' is a Spark process.

    All addresses are asked at the same time, so that several silent ones take no longer than one.
    """
    addresses = master.removeprefix("spark://").split(",")
    is_protected = _is_protected(properties)
    pool = ThreadPoolExecutor(len(addresses))
    try:
        refusals = {pool.submit(_refusal, address, is_protected): address for address in addresses}
        reasons = {}
        for refusal in as_completed(refusals):
            reason = refusal.result()
            if reason is None:
                return
            reasons[refusals[refusal]] = reason
    finally:
        pool.shutdown(wait=False)  # one master suffices; the other connections end with their time limit
    raise SparkUnavailableError(
        f"The Spark master '{master}' cannot be reached ({', '.join(reasons[address] for address in addresses)}); "
        "start it, or give the address of a running one."
    )


def _refusal(address: str, is_protected: bool) -> str | None:
    """Return why an address is no Spark master; None if it is one."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            # A master with authentication or encryption answers in another way.
            if is_protected or _answers(connection):
                return None
            return f"{address} accepts connections, but is not a Spark master"
    except ValueError:
        return f"'{address}' is not HOST:PORT"
    except OSError as error:
        return f"{address}: {error.strerror or error}"


def _answers(connection: socket.socket) -> bool:
    message = struct.pack(">bi", _STREAM_REQUEST, len(_STREAM)) + _STREAM
    expected = struct.pack(">bi", _STREAM_FAILURE, len(_STREAM)) + _STREAM
    received, deadline = b"", time.monotonic() + _TIMEOUT_S
    with contextlib.suppress(OSError):  # no answer in time, or the connection was closed
        connection.sendall(struct.pack(">q", len(message) + 8) + message)
        while len(received) < len(expected) + 8 and (part := connection.recv(4096)):
            received += part
            connection.settimeout(max(0.001, deadline - time.monotonic()))  # also for an answer that comes in bits
    return received[8:].startswith(expected)


def _is_protected(properties: dict[str, str]) -> bool:
    """Return whether the session uses authentication or encryption. Given properties replace those of the file."""
    effective = _file_properties() | properties
    return any(effective.get(name, "").strip().lower() == "true" for name in _PROTECTED)


def _file_properties() -> dict[str, str]:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (Path(home) / "conf" if home else None)
    if folder is None:
        return {}
    with contextlib.suppress(OSError):
        return dict(_DEFAULT.findall((Path(folder) / "spark-defaults.conf").read_text(errors="replace")))
    return {}
