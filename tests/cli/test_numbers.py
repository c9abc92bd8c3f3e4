"""Every command refuses numbers that are not finite or not within their bounds, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli


def commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


NUMBERS = {
    (*path, option.opts[0]): option
    for path, command in commands(cli)
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, click.types.FloatParamType | click.FloatRange)
}


def refusal(*words: str) -> str:
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == 2, (result.output, result.exception)
    return " ".join(result.output.split())


def test_the_list_of_numeric_options_is_not_empty() -> None:
    assert {("simulate", "--window-s"), ("report", "--price"), ("load", "--seconds"), ("mst", "fit", "--level")} <= {
        *NUMBERS
    }


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize("words", NUMBERS, ids=" ".join)
def test_only_finite_numbers_are_accepted(words: tuple[str, ...], number: str) -> None:
    """The command must stop at this option; if it accepted the value, it would start its work."""
    with pytest.raises(click.BadParameter, match="is not a finite number|is not in the range"):
        NUMBERS[words].type.convert(number, NUMBERS[words], None)


def test_the_error_names_the_option() -> None:
    assert "Invalid value for '--window-s': 'nan' is not a finite number" in refusal("simulate", "--window-s", "nan")


@pytest.mark.parametrize(
    "words",
    [
        ("allocate", "--rate", "-5"),
        ("allocate", "--rate", "0"),
        ("elastic", "--price", "0"),
        ("elastic", "--peak", "-3"),
    ],
    ids=" ".join,
)
def test_the_error_states_the_bounds(words: tuple[str, ...]) -> None:
    assert "is not in the range x>0" in refusal(*words)


@pytest.mark.parametrize("policy", ["drs", "threshold", "stela", "ds2", "mst"])
def test_only_measured_quantiles_are_accepted(policy: str) -> None:
    words = ["--policy", policy, "--latency-ms", "100", "--quantile", "0.9", "--executors", "1..2"]
    says = refusal("simulate", "flow.py", "--trace", "day.csv", *words)
    assert "The quantile 0.9 of the latency is not measured; use one of 0.5, 0.95, 0.99" in says


def test_a_run_takes_the_same_quantiles() -> None:
    says = refusal("run", "flow.py", "--policy", "drs", "--latency-ms", "100", "--quantile", "0.9")
    assert "The quantile 0.9 of the latency is not measured" in says
