"""Settings of the policy that change during a run: K_max, T_max, T_min and T_ra in each order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.api.launch import PolicySettings
from penstock.api.policy_options import OptionError, PolicyOptions, controller_settings, create_policy
from penstock.cli.main import cli
from penstock.control.controller import Controller
from penstock.control.requests import SetPolicy
from penstock.store import RunStart, Store
from tests.support.memory_engine import FakeClock
from tests.support.scripted import scripted_engine

Change = Callable[..., str | None]


@pytest.fixture
def settings_of(tmp_path: Path) -> Any:
    """Return a function that starts a controller with options, and returns a function that changes its settings."""
    stores = []

    def make(**options: Any) -> Change:
        chosen = PolicyOptions(mode="active", micro_batch=False, **options)
        chosen.check()
        engine = scripted_engine(FakeClock())  # 22 slots
        store = Store(tmp_path)
        stores.append(store)
        store.begin_run(RunStart(dataflow="video", flow_file="flow.py", pid=1, master="fake", started_s=0.0))
        settings = controller_settings(chosen, window_s=60.0, micro_batch=False)
        controller = Controller(create_policy(chosen), settings, engine, store)
        policy_settings = PolicySettings(chosen, controller, store)
        return lambda **given: policy_settings.change(SetPolicy(**given))

    yield make
    for store in stores:
        store.close()


@pytest.mark.parametrize("policy", ["drs", "auto"])
@pytest.mark.parametrize("start", [{"latency_s": 2.0}, {"max_slots": 8}], ids=["target", "limit"])
def test_each_setting_can_be_added_to_a_run(policy: str, start: dict[str, Any], settings_of: Any) -> None:
    change = settings_of(policy=policy, **start)
    assert change(latency_s=1.5, max_slots=12, cooldown_s=30.0) is None
    assert change(release_below_s=0.5) is None
    assert change(max_slots=6) is None and change(latency_s=3.0) is None


def test_a_release_limit_requires_a_target(settings_of: Any) -> None:
    change = settings_of(policy="drs", max_slots=8)
    with pytest.raises(OptionError, match=r"require a latency target: give latency_s \(--latency-ms\) as well"):
        change(release_below_s=0.5)
    assert change(release_below_s=0.5, latency_s=1.0) is None


def test_slots_that_the_executors_do_not_have_are_named(settings_of: Any) -> None:
    change = settings_of(policy="auto", latency_s=2.0, executors=(1, 6), executor_cores=2)
    assert change(max_slots=12) is None
    assert change(max_slots=13) == "No more than 12 are used: its 6 executors, the most it may use, have 12 slots."


def test_the_example_of_the_command_fits_each_policy_with_a_target(settings_of: Any) -> None:
    shown = CliRunner().invoke(cli, ["set", "--help"]).output
    assert "penstock set runs/wc --latency-ms 1500 --max-slots 24" in shown
    change = settings_of(policy="drs", max_slots=8)
    assert change(latency_s=1.5, max_slots=24) == "No more than 22 are used: the run has 22 slots."
