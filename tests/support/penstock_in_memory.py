"""The `penstock` command with the engine in memory instead of Spark, for tests of commands that start a run."""

from __future__ import annotations

import sys
import types

import penstock.cli.main
from penstock.engines.spark import early_jvm
from tests.support.memory_engine import MemoryEngine

stand_in = types.ModuleType("penstock.engines.spark.engine")
stand_in.SparkEngine = MemoryEngine  # type: ignore[attr-defined]

if __name__ == "__main__":
    sys.modules[stand_in.__name__] = stand_in
    early_jvm.start = lambda *_: None  # type: ignore[assignment]
    penstock.cli.main.main()
