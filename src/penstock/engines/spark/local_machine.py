"""Processes of Spark on this machine: the address that they listen on and the Python interpreter of their workers."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

HOST = "127.0.0.1"
_WORKER_SCRIPT = Path(__file__).with_name("worker-python")


def worker_python() -> dict[str, str]:
    """Return environment variables for a JVM, so that its workers use the driver's interpreter and start quickly.

    Spark's default is the first `python3` on the PATH.
    """
    pyspark = importlib.util.find_spec("pyspark")  # an import would take half a second
    # If pyspark was loaded from Spark's own zip file, no installed package can replace it in the workers.
    if pyspark is not None and Path(pyspark.origin or "").is_file() and os.access(_WORKER_SCRIPT, os.X_OK):
        return {"PYSPARK_PYTHON": str(_WORKER_SCRIPT), "PENSTOCK_PYTHON": sys.executable}
    return {"PYSPARK_PYTHON": sys.executable}
