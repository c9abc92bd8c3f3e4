"""Which Python Spark's workers on this machine run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyspark

_SCRIPT = Path(__file__).with_name("worker-python")


def worker_python() -> dict[str, str]:
    """What the environment of a JVM must say, so that its workers run what the driver runs, and start quickly.

    Spark's default is whatever 'python3' is on the PATH.
    """
    # A pyspark out of Spark's own zip is installed nowhere else.
    if Path(pyspark.__file__).exists() and os.access(_SCRIPT, os.X_OK):
        return {"PYSPARK_PYTHON": str(_SCRIPT), "PENSTOCK_PYTHON": sys.executable}
    return {"PYSPARK_PYTHON": sys.executable}
