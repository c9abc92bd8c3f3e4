from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import COMMANDS, cli
from penstock.dataflow import PenstockError
from penstock.plan import Plan

FLOW = """
import penstock
flow = penstock.Dataflow("wordcount")
lines = flow.source("lines", penstock.replay("books/*.txt", rows_per_s=2000))
words = lines.stateless("split", lambda df: df)
counts = words.keyed("count", lambda df: df, keys=["word"])
counts.sink("out", penstock.noop())
counts.global_state("top", lambda df: df).sink("top_out", penstock.noop())
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    file = tmp_path / "wordcount.py"
    file.write_text(FLOW)
    return str(file)


def test_as_a_tree(flow: str) -> None:
    shown = CliRunner().invoke(cli, ["show", flow, "--slots", "3", "--no-spark"], catch_exceptions=False).output
    for part in (
        "count: keyed · from split · keys word",
        "count (keyed by word)",
        "default plan: 3 slots, 3 queries",
        "count: lines -> split x3 -> count x3",
        "cut: fan-out: out, top read it",
        "top_out: (count) -> top x1 -> top_out x1",
    ):
        assert part in shown


def test_sources_of_a_join_are_beside_each_other(tmp_path: Path) -> None:
    file = tmp_path / "join.py"
    file.write_text(
        "import penstock\n"
        "flow = penstock.Dataflow('pairs')\n"
        "row = penstock.generate(lambda n: n, schema='n bigint', rows=1)\n"
        "left, right = flow.source('left', row), flow.source('right', row)\n"
        "pairs = flow.keyed('pair', lambda a, b: a.join(b, 'n'), keys=['n'], inputs=[left, right])\n"
        "pairs.sink('out', penstock.noop())\n"
    )
    shown = CliRunner().invoke(cli, ["show", str(file), "--no-spark"], catch_exceptions=False).output
    assert "out: left, right -> pair x2 -> out x2" in shown


def test_columns_may_have_brackets(flow: str) -> None:
    Path(flow).write_text(FLOW.replace('keys=["word"]', 'keys=["[red]word"]'))
    printed = CliRunner().invoke(cli, ["show", flow, "--no-spark"]).output
    assert "keys [red]word" in printed and "(keyed by [red]word)" in printed


def test_as_json(flow: str) -> None:
    shown = json.loads(
        CliRunner().invoke(cli, ["show", f"{flow}:flow", "--json", "--no-spark"], catch_exceptions=False).output
    )
    assert [row["operator"] for row in shown["operators"]] == ["lines", "split", "count", "out", "top", "top_out"]
    assert shown["cuts"] == [{"after": "count", "reason": "fan-out: out, top read it"}]
    assert Plan.from_json(json.dumps(shown["plan"])).replicas == {"split": 2, "count": 2, "out": 2, "top": 1}
    assert [row["pipeline"] for row in shown["pipelines"]] == ["count", "out", "top_out"]


@pytest.mark.parametrize(
    "arguments",
    [["show", "none.py"], ["run", "none.py"], ["status", "none"], ["stop", "none"], ["apply", "none", "none.json"]],
)
def test_a_missing_dataflow_is_one_clear_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert isinstance(result.exception, PenstockError) and "none" in str(result.exception)


@pytest.mark.parametrize(
    "words",
    [
        "rescale d a=x",
        "rescale d a=1.5",
        "rescale d a=1 a=2",
        "rescale d",
        "cut d",
        "fuse d",
        "rate d a=-1",
        "rate d a=inf",
        "rate d a",
    ],
)
def test_invalid_arguments_are_refused(words: str) -> None:
    result = CliRunner().invoke(cli, words.split())
    assert result.exit_code == 2 and "Error: " in result.output


def leaves(name: str) -> list[list[str]]:
    """Return the words of a command, or of each command in a group."""
    command = cli.get_command(click.Context(cli), name)
    subcommands = getattr(command, "commands", None)
    return [[name, sub] for sub in subcommands] if subcommands else [[name]]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_json(name: str) -> None:
    for words in leaves(name):
        shown = CliRunner().invoke(cli, [*words, "--help"], catch_exceptions=False).output
        assert "Example:" in shown and f"penstock {' '.join(words)}" in shown and "--json" in shown


@pytest.mark.parametrize("name", ["plan", "window", "request", "answer", "outline", "status"])
def test_schemas(name: str) -> None:
    assert "$defs" in json.loads(CliRunner().invoke(cli, ["schema", name], catch_exceptions=False).output)
