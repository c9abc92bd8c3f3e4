"""`penstock.load_topic` refuses arguments that do not fit together before it connects to a broker."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import penstock
from penstock.cli.main import cli


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of a rate, a trace and a backlog"),
        ({"rate": 1.0, "backlog": 5}, "exactly one of a rate, a trace and a backlog"),
        ({"rate": 1.0, "peak": 5.0}, "give a trace too"),
        ({"backlog": 5, "max_rows": 5}, "give a rate too"),
        ({"backlog": 5, "seconds": 5.0}, "A time limit applies to a rate or a trace"),
    ],
)
def test_a_load_that_is_not_defined_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(penstock.OptionError, match=message):
        penstock.load_topic("lines", str, partitions=4, bootstrap_servers="localhost:1", **given)
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    command = ["load", "lines", "--rows", "builtins:str", "--partitions", "4", "--bootstrap-servers", "localhost:1"]
    result = CliRunner().invoke(cli, [*command, *words])
    assert result.exit_code == 2 and message in " ".join(result.output.split())
