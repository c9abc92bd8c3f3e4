"""`penstock`: the table of commands. Each command is a file of this folder, imported only when it is used."""

from __future__ import annotations

import importlib
import os
import sys

import click

from penstock.api.policy_options import OptionError
from penstock.dataflow.errors import PenstockError

# name -> (module, text in `penstock --help`)
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Run a rising and falling load with and without Penstock (two minutes)."),
    "show": ("show", "Print the operators and the default plan of a dataflow."),
    "run": ("run", "Run a dataflow, or resume it."),
    "status": ("status", "Print the state of a run."),
    "decisions": ("decisions", "Print the decisions of a policy, their reasons and results."),
    "whatif": ("whatif", "Replay a run in the simulator with another plan, load or limit."),
    "report": ("report", "Write a run as one HTML file: load, latency, cost, decisions."),
    "apply": ("apply", "Change the plan of a run."),
    "rescale": ("rescale", "Change the replicas and threads of a run."),
    "cut": ("cut", "Add cuts to the plan of a run."),
    "fuse": ("fuse", "Remove cuts from the plan of a run."),
    "rate": ("rate", "Change the rate of a source of a run."),
    "set": ("set", "Change settings of the policy of a run."),
    "stop": ("stop", "Stop a run cleanly."),
    "cluster": ("cluster", "Start, show or stop a standalone Spark cluster on this machine."),
    "broker": ("broker", "Start, show or stop a Kafka broker on this machine."),
    "load": ("load", "Append generated rows to a Kafka topic."),
    "assign": ("assign", "Compute processors per operator for a latency target or a budget."),
    "allocate": ("allocate", "Compute threads, slots and VMs for a rate from performance curves."),
    "curves": ("curves", "Measure performance curves of operators: peak rate by number of threads."),
    "mst": ("mst", "Measure and predict the maximum sustainable throughput."),
    "profile": ("profile", "Find the best plan on a given number of slots with a few trials."),
    "compare": ("compare", "Compare the results and the throughput of two dataflows."),
    "calibrate": ("calibrate", "Measure the costs of an engine for policy fission-model."),
    "elastic": ("elastic", "Compare schedules of VMs for a changing load."),
    "simulate": ("simulate", "Simulate a dataflow under a policy and a trace of the load."),
    "arena": ("arena", "Compare all policies on generated dataflows, loads and engines."),
    "schema": ("schema", "Print the JSON schema of a format."),
}


class Commands(click.Group):
    """A group that imports only the requested command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{COMMANDS[name][0]}")
        command: click.Command = module.command
        command.name = name  # the function of each module is called `command`
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except OptionError as error:
            raise click.UsageError(str(error)) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock")
def cli() -> None:
    """Measure, model, plan and scale streaming pipelines on Spark Structured Streaming.

    \b
    Example:
      penstock run wordcount.py --at runs/wc --master local[4]
    """


def main() -> None:
    """Run the command; print an error of Penstock or of the file system as one line and exit with code 1."""
    try:
        try:
            cli(standalone_mode=True)
        finally:
            sys.stdout.flush()  # here, because Python reports an error at its end with a traceback
    except PenstockError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        _discard_output()
        if isinstance(error, BrokenPipeError):  # such as `penstock decisions | head`
            sys.exit(1)
        subject = f"Cannot use '{error.filename}'" if error.filename is not None else "Cannot write the output"
        if isinstance(error, ConnectionError):
            subject = "A connection was lost"
        click.echo(f"Error: {subject}: {error.strerror or error}.", err=True)
        sys.exit(1)


def _discard_output() -> None:
    """Discard what is left in the buffer of stdout, which Python would try to write again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
