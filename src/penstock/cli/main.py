"""`penstock`: the table of commands. Each is a file of this folder, imported only when it is called."""

from __future__ import annotations

import importlib
import sys

import click

from penstock.dataflow.errors import PenstockError

# name -> (module, what `penstock --help` says of it)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Two minutes of word count: live table, plan changes, exactness check."),
    "show": ("show", "Operators and the default plan of a dataflow."),
    "run": ("run", "Run a dataflow, or resume it."),
    "status": ("status", "What a run is doing."),
    "decisions": ("decisions", "What a policy decided, why, and what came of it."),
    "report": ("report", "A run as one HTML file: graph, load and latency over time, cost, decisions."),
    "apply": ("apply", "Give a running run another plan."),
    "rescale": ("rescale", "Change replicas of a running run."),
    "rate": ("rate", "Change the rate of a source of a running run."),
    "stop": ("stop", "Stop a running run cleanly."),
    "cluster": ("cluster", "A standalone Spark cluster on this machine: start, status, stop."),
    "broker": ("broker", "A Kafka broker on loopback, for those who have none."),
    "load": ("load", "Append generated rows to a Kafka topic, at a rate, along a trace, or as a backlog."),
    "assign": ("assign", "Processors for operators: least latency in a budget, or fewest for a target."),
    "allocate": ("allocate", "Threads, slots and VMs for a rate, from performance curves."),
    "mst": ("mst", "Maximum sustainable throughput by VM count: fit, and which counts to measure."),
    "elastic": ("elastic", "How many VMs to rent as a load moves."),
    "simulate": ("simulate", "A policy on a simulated dataflow under a trace: cost, violations, changes."),
    "arena": ("arena", "All policies on the same applications: one league table."),
    "schema": ("schema", "The JSON schema of a format."),
}


class Commands(click.Group):
    """Knows its commands by name; imports the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def cli() -> None:
    """Measures, models, plans and scales streaming pipelines on Spark Structured Streaming.

    \b
    Example:
      penstock run wordcount.py --at runs/wc --master local[4]
    """


def main() -> None:
    """Turns an error that Penstock raises on purpose into one line and exit code 1."""
    try:
        cli(standalone_mode=True)
    except PenstockError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
