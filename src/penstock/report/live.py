"""Windows as they come: a live table on a terminal, one line each elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

import msgspec
from rich.console import Console
from rich.live import Live

from penstock.measure.window import Window
from penstock.plan.plan import Plan
from penstock.report.table import line, table


class Viewer:
    """Give its `show` to the loop as `on_window`."""

    def __init__(self, *, quiet: bool = False, as_json: bool = False, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._quiet = quiet
        self._as_json = as_json
        self._live: Live | None = None

    def show(self, window: Window, plan: Plan | None) -> None:
        if self._as_json:
            print(msgspec.json.encode(window).decode(), flush=True)
        elif self._quiet:
            return
        elif not self._console.is_terminal:
            clock = time.strftime("%H:%M:%S", time.localtime(window.end_s))
            self._console.print(f"{clock} {line(window)}", soft_wrap=True, markup=False)
        else:
            if self._live is None:
                self._live = Live(console=self._console, auto_refresh=False)
                self._live.start()
            self._live.update(table(window, plan), refresh=True)

    def say(self, text: str) -> None:
        """A line that stays; above the table while there is one."""
        if not self._quiet and not self._as_json:
            self._console.print(text, soft_wrap=True, markup=False)

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
