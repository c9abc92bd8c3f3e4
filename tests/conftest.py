"""One Spark for all tests that need it: it takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from penstock.engines.spark.session import session

    # Workers unpickle functions of the tests by the name of their module.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent / "spark"), os.environ.get("PYTHONPATH", "")])
    spark = session("local[2]", "penstock tests")
    yield spark
    spark.stop()
