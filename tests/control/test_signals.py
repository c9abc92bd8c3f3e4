"""Signals as a question that the loop can ask."""

from __future__ import annotations

import os
import signal
import time

import pytest

from penstock.control.signals import StopSignals


def test_signals_that_come_together_are_one_and_a_later_one_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    with StopSignals() as signals:
        for number in (signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert signals.received == "SIGTERM"
        later_s = time.monotonic() + 60.0
        monkeypatch.setattr(time, "monotonic", lambda: later_s)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
