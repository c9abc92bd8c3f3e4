"""What a master says of itself on its web page's JSON."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

_PATIENCE_S = 2.0


def asked_master(web_port: int) -> dict[str, Any] | None:
    """None: it does not answer."""
    try:
        # A proxy is for the way out of this machine, and this is not.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{web_port}/json/", timeout=_PATIENCE_S) as answer:
            said: dict[str, Any] = json.load(answer)
            return said
    except (OSError, urllib.error.URLError, ValueError):
        return None


def workers_alive(web_port: int) -> int | None:
    said = asked_master(web_port)
    return None if said is None else int(said["aliveworkers"])
