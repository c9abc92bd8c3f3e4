"""Locations of local files in the form that Spark understands independently of its default file system."""

from __future__ import annotations

from pathlib import Path


def local_location(path: Path) -> str:
    """Return the location of a file or folder on this disk, for an argument of Spark.

    A path without a scheme belongs to `fs.defaultFS`, which is HDFS on every YARN cluster. Spark and Hadoop parse a
    location without decoding it, so that '%', '#' and spaces stay as they are.

    >>> local_location(Path("/data/50 % #1"))
    'file:///data/50 % #1'
    """
    return f"file://{path.absolute()}"
