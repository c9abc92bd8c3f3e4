"""Paths on local or shared disks, which every process reaches under the same name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from penstock.dataflow.errors import DataflowError

_SCHEME = re.compile(r"([A-Za-z][\w+.-]*):/")


def local_path(path: str | Path) -> str:
    """Return a path without the scheme `file:`.

    Raises:
        DataflowError: The path is a URL with another scheme.

    >>> local_path("data/*.csv"), local_path("file:///data/out")
    ('data/*.csv', '/data/out')
    >>> local_path("s3a://bucket/out")
    Traceback (most recent call last):
    penstock.dataflow.errors.DataflowError: The path 's3a://bucket/out' is not on a local or shared disk; give a path \
such as '/data/out'.
    """
    text = str(path)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return text
    if scheme[1].lower() != "file":
        raise DataflowError(f"The path '{text}' is not on a local or shared disk; give a path such as '/data/out'.")
    return urlsplit(text).path
