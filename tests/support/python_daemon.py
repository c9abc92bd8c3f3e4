"""The parent of Spark's Python workers in tests: it imports large modules once, and each worker inherits them.

Spark's own daemon imports nothing, so each worker spends about a second of CPU time on imports.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark.daemon import manager

MODULES = (
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.pandas.serializers",
    "penstock.engines.spark.sources.paced",
    "penstock.engines.spark.compile.row_functions",
)

if __name__ == "__main__":
    for module in (*MODULES, *sys.argv[1:2]):
        import_module(module)
    gc.freeze()  # a collection in a worker copies no memory of its parent
    manager()
