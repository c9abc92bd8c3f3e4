"""The state of a master, as its web page reports it in JSON."""

from __future__ import annotations

import urllib.error
import urllib.request

import msgspec

from penstock.engines.spark.local_machine import HOST

_TIMEOUT_S = 2.0


class Application(msgspec.Struct, frozen=True):
    name: str


class MasterState(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the master's report that Penstock uses."""

    workers_alive: int = msgspec.field(name="aliveworkers")
    slots_used: int = msgspec.field(name="coresused")
    applications: tuple[Application, ...] = msgspec.field(name="activeapps", default=())


def master_state(web_port: int) -> MasterState | None:
    """Return the state of the master with this web page, or None if it does not answer."""
    try:
        # Bypass proxies: they are for connections to other machines.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{HOST}:{web_port}/json/", timeout=_TIMEOUT_S) as answer:
            return msgspec.json.decode(answer.read(), type=MasterState)
    except (OSError, urllib.error.URLError, ValueError):
        return None


def workers_alive(web_port: int) -> int | None:
    """Return the number of registered workers, or None if the master does not answer."""
    state = master_state(web_port)
    return None if state is None else state.workers_alive
