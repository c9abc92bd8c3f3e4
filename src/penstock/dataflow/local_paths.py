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
        url = f"{scheme[1]}://{text[scheme.end() :].lstrip('/')}"  # a Path has only one of the slashes
        raise DataflowError(f"The path '{url}' is not on a local or shared disk; give a path such as '/data/out'.")
    return urlsplit(text).path


def local_directory(path: str | Path) -> Path:
    """Return a directory, for example of a run.

    Raises:
        DataflowError: The path is a URL with a scheme other than `file:`.

    >>> local_directory(Path("hdfs://host/run"))
    Traceback (most recent call last):
    penstock.dataflow.errors.DataflowError: The path 'hdfs://host/run' is not on a local or shared disk; give a path \
such as '/data/out'.
    """
    return Path(local_path(path))
