"""Runs the command line as a process at a pseudo-terminal, and returns what a person would get to see."""

import os
import select
import subprocess
import sys
import termios
import time

AEOLUS = [sys.executable, "-m", "aeolus_sandbox"]
LIMIT_S = 60


def at_terminal(*arguments: str, cols: int = 160) -> tuple[int, str]:
    """Return the exit code, and all that reached the terminal, with its line ends as they were written."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, cols))
    try:
        process = subprocess.Popen(
            [*AEOLUS, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env=_environment() | {"COLUMNS": str(cols), "TERM": "xterm"},
        )
        os.close(slave)
        try:
            seen = _read_to_end(master, time.monotonic() + LIMIT_S)
            return process.wait(LIMIT_S), seen.decode().replace("\r\n", "\n")
        finally:
            process.kill()
            process.wait()
    finally:
        os.close(master)


def _environment() -> dict[str, str]:
    # With colours, which are then the terminal's to obey.
    return {name: value for name, value in os.environ.items() if name != "NO_COLOR"}


def _read_to_end(master: int, deadline: float) -> bytes:
    seen = b""
    while select.select([master], [], [], max(0.0, deadline - time.monotonic()))[0]:
        try:
            data = os.read(master, 65536)
        except OSError:  # EIO: nobody has the other end any more
            return seen
        if not data:
            return seen
        seen += data
    msg = f"it does not end; it said {seen!r}"
    raise AssertionError(msg)
