"""Directories that are not on a disk are refused in one sentence, and no local folder is created for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import cli

URLS = ("s3a://bucket/run", "hdfs://host:8020/run")
FLOW = """
import penstock

flow = penstock.Dataflow("numbers")
numbers = flow.source("numbers", penstock.generate(lambda n: n, schema="n bigint", rows=10))
numbers.sink("out", penstock.memory())
"""


@pytest.fixture(autouse=True)
def flow_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.py").write_text(FLOW)


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "command",
    [
        "run flow.py --at {}",
        "run flow.py --cluster {}",
        "status {}",
        "stop {}",
        "decisions {}",
        "rescale {} numbers=2",
        "cut {} numbers",
        "fuse {} numbers",
        "rate {} numbers=5",
        "report {}",
        "mst measure flow.py --executors 1 --at {}",
        "mst predict {} --executors 2",
        "demo --at {}",
        "cluster start --at {}",
        "cluster status --at {}",
        "cluster stop --at {}",
        "broker start --at {}",
        "broker status --at {}",
        "broker stop --at {}",
    ],
)
def test_commands(tmp_path: Path, command: str, url: str) -> None:
    result = CliRunner().invoke(cli, command.format(url).split())
    assert isinstance(result.exception, penstock.PenstockError), result.output
    expected = f"The path '{url}' is not on a local or shared disk; give a path such as '/data/out'."
    assert str(result.exception) == expected
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    "call",
    [
        lambda url: penstock.run("flow.py", at=url),
        lambda url: penstock.open_run(url),
        lambda url: penstock.measure_mst("flow.py", executors=(1,), at=url),
        lambda url: penstock.predict_mst(url, executors=(1,)),
        lambda url: penstock.watch(None, at=url, executors=(1, 2)),
        lambda url: penstock.demonstrate(at=url),
        lambda url: penstock.start_cluster(url, workers=1),
        lambda url: penstock.start_broker(url),
    ],
)
def test_functions(tmp_path: Path, call: Callable[[str], Any], url: str) -> None:
    with pytest.raises(penstock.PenstockError, match=f"The path '{url}' is not on a local or shared disk"):
        call(url)
    assert not any(path.is_dir() and path.name != "__pycache__" for path in tmp_path.iterdir())
