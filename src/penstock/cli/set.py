"""penstock set: change settings of the policy of a run."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli.parameters import ABOVE_0, RUN_DIRECTORY, TIMEOUT, Finite, json_option


@click.command()
@RUN_DIRECTORY
@click.option("--latency-ms", type=ABOVE_0, help="Latency target in milliseconds.")
@click.option("--release-below-ms", type=Finite(min=0), help="Release slots only below this latency (drs).")
@click.option("--max-slots", type=click.IntRange(min=1), help="Largest number of slots to use.")
@click.option("--cooldown-s", type=Finite(min=0), help="Smallest time between two plan changes.")
@TIMEOUT
@json_option("Print the answer as JSON.")
def command(
    run_dir: Path,
    latency_ms: float | None,
    release_below_ms: float | None,
    max_slots: int | None,
    cooldown_s: float | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Change settings of the policy of a running dataflow. Settings that are not given stay.

    \b
    Example:
      penstock set runs/wc --latency-ms 1500 --max-slots 24
    """
    import msgspec

    import penstock

    answer = penstock.open_run(run_dir).set(
        latency_s=None if latency_ms is None else latency_ms / 1000,
        release_below_s=None if release_below_ms is None else release_below_ms / 1000,
        max_slots=max_slots,
        cooldown_s=cooldown_s,
        timeout_s=timeout_s,
    )
    click.echo(msgspec.json.format(msgspec.json.encode(answer)) if as_json else answer.text)
