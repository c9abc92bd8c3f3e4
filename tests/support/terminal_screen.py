"""A pseudo-terminal for a child process, and the screen that a user would see in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from dataclasses import dataclass, field

_PART = re.compile(r"\x1b\[(?P<parameters>[0-9;?]*)(?P<control>[A-Za-z])|(?P<text>[^\x1b])", re.DOTALL)


@dataclass
class Screen:
    """Interprets the control sequences that a live table uses; any other sequence is an error."""

    width: int
    height: int
    lines: list[str] = field(default_factory=lambda: [""])
    scrolled: int = 0  # lines that have left the screen at the top
    cursor_ups: int = 0
    _row: int = 0
    _column: int = 0

    def write(self, output: str) -> None:
        position = 0
        while position < len(output):
            part = _PART.match(output, position)
            assert part is not None, f"unknown control sequence: {output[position : position + 20]!r}"
            position = part.end()
            if part["text"] is not None:
                self._character(part["text"])
            else:
                self._control(part["control"], part["parameters"])

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append("")
            if len(self.lines) > self.height:
                self.lines.pop(0)
                self._row -= 1
                self.scrolled += 1
        else:
            assert self._column < self.width, "a line is wider than the terminal"
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def _control(self, control: str, parameters: str) -> None:
        if control == "A":
            rows = int(parameters or 1)
            self.cursor_ups += rows
            assert self._row >= rows, "the cursor would leave the screen"
            self._row -= rows
        elif control == "K":
            assert parameters == "2", "only whole lines are erased"
            self.lines[self._row] = ""
        else:  # colours, and the visibility of the cursor
            assert control in "mhl", f"unknown control sequence: {parameters}{control}"


def output_in_terminal(command: list[str], *, width: int, height: int, timeout_s: float = 300.0) -> str:
    """Return everything that a process writes to a terminal of this size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    ignored = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    environment = {name: value for name, value in os.environ.items() if name not in ignored}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment | {"TERM": "xterm-256color"}
    )
    os.close(slave)
    output = b""
    try:
        while True:
            readable, _, _ = select.select([master], [], [], timeout_s)
            assert readable, f"nothing was written for {timeout_s} s"
            try:
                part = os.read(master, 65536)
            except OSError:  # Linux reports the end of the last writer as an error
                part = b""
            if not part:
                break
            output += part
        assert process.wait(timeout_s) == 0, output.decode()
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return output.decode()
