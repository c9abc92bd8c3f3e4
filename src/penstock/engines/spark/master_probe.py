"""A check that a standalone master answers, before Spark looks for it for a minute."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from pathlib import Path

from penstock.dataflow.errors import SparkUnavailableError

_TIMEOUT_S = 5.0
# Spark's network protocol: a frame is its length (8 bytes), the type of the message (1 byte) and the message. Any Spark
# process answers the request of a stream that does not exist with a failure that repeats the name of the stream.
_STREAM_REQUEST, _STREAM_FAILURE = 6, 8
_STREAM = b"/jars/penstock-probe"
_ENCRYPTED = re.compile(r"spark\.(authenticate|ssl|network\.crypto)")


def check_reachable(master: str, properties: dict[str, str]) -> None:
    """Raise SparkUnavailableError if none of the addresses in 'spark://HOST:PORT,HOST:PORT' is a Spark process."""
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
                # A master with authentication or encryption answers in another way.
                if _uses_encryption(properties) or _answers(connection):
                    return
                reasons.append(f"{address} accepts connections, but is not a Spark master")
        except ValueError:
            reasons.append(f"'{address}' is not HOST:PORT")
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise SparkUnavailableError(
        f"The Spark master '{master}' cannot be reached ({', '.join(reasons)}); start it, or give the address of a "
        "running one."
    )


def _answers(connection: socket.socket) -> bool:
    message = struct.pack(">bi", _STREAM_REQUEST, len(_STREAM)) + _STREAM
    expected = struct.pack(">bi", _STREAM_FAILURE, len(_STREAM)) + _STREAM
    received = b""
    with contextlib.suppress(OSError):  # no answer in time, or the connection was closed
        connection.sendall(struct.pack(">q", len(message) + 8) + message)
        while len(received) < len(expected) + 8 and (part := connection.recv(4096)):
            received += part
    return received[8:].startswith(expected)


def _uses_encryption(properties: dict[str, str]) -> bool:
    if any(_ENCRYPTED.match(name) for name in properties):
        return True
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (Path(home) / "conf" if home else None)
    if folder is None:
        return False
    with contextlib.suppress(OSError):
        return _ENCRYPTED.search((Path(folder) / "spark-defaults.conf").read_text(errors="replace")) is not None
    return False
