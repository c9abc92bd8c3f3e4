"""Spark's private JVM API is used in one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock

SOURCES = Path(penstock.__file__).parent
JVM = SOURCES / "engines" / "spark" / "jvm.py"
PRIVATE = re.compile(
    r"\.(_jvm|_jsc|_jsq|_jdf|_jsparkSession|_gateway|_streamingCheckpointManager|_active_spark_context)\b"
    r"|\bpy4j\b|java_gateway"
)


def uses(text: str) -> list[str]:
    return [match[0] for match in PRIVATE.finditer(text)]


@pytest.mark.parametrize("line", ["spark._jvm.java", "query._jsq.status()", "from py4j.protocol import Py4JError"])
def test_private_names_are_recognised(line: str) -> None:
    assert uses(line)


def test_only_one_module_uses_the_private_jvm_api() -> None:
    outside = {
        str(path.relative_to(SOURCES)): names
        for path in SOURCES.rglob("*.py")
        if path != JVM and (names := uses(path.read_text()))
    }
    assert outside == {}
    assert uses(JVM.read_text())
