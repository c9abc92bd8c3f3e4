"""The Nexmark queries on the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from penstock.apps import nexmark
from penstock.cli.main import cli


@pytest.mark.parametrize("query", [query.__name__.rpartition(".")[2] for query in nexmark.QUERIES])
def test_show_prints_every_query(query: str) -> None:
    words = ["show", f"penstock.apps.nexmark:{query}(rows=100)", "--json", "--no-spark"]
    printed = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert json.loads(printed.output)["plan"]["dataflow"] == query
