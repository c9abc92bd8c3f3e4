"""Paths that a dataflow names: of disks that every process reaches by the same path."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from penstock.dataflow.errors import DataflowError

_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):/")


def local_path(given: str | Path) -> str:
    """
    >>> local_path("data/*.csv"), local_path("file:///data/out")
    ('data/*.csv', '/data/out')
    >>> local_path("s3a://bucket/out")
    Traceback (most recent call last):
    penstock.dataflow.errors.DataflowError: 's3a://bucket/out' is not on a local or shared disk; give a path that is, \
such as '/data/out'
    """
    path = str(given)
    scheme = _SCHEME.match(path)
    if scheme is None:
        return path
    if scheme[1].lower() != "file":
        raise DataflowError(f"'{path}' is not on a local or shared disk; give a path that is, such as '/data/out'")
    return urlsplit(path).path
