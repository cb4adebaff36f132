"""The demo: an untrusted script is run and watched, each forbidden thing is shown to be stopped, and starts are timed.

Run it with `scripts/demo`. It ends with 1 if anything forbidden was not stopped, or the plot did not arrive.
"""

import asyncio
import re
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aeolus_sandbox import (
    AeolusError,
    CodeInterpreterInput,
    CodeInterpreterTool,
    CodeResult,
    LimitName,
    Limits,
    SessionManager,
    TerminalInput,
    TerminalTool,
)
from aeolus_sandbox.streaming.screen import ScreenFilter

HERE: Final = Path(__file__).resolve().parent
OUTPUT: Final = HERE.parent / "demo-output"
MEMORY_BOMB: Final = "held = []\nwhile True:\n    held.append(bytearray(16 * 1024 * 1024))"
MEMORY_BOMB_LIMIT: Final = 256 * 1024 * 1024
COLD_RUNS: Final = 5
PARKED_RUNS: Final = 8
CELL_RUNS: Final = 20

console = Console()


@dataclass(frozen=True, slots=True)
class Barrier:
    """What should stop an attempt, and the errors by which that is known."""

    name: str
    errors: frozenset[str]


BARRIERS: Final = {
    "network": Barrier("network none", frozenset({"ENETUNREACH"})),
    "fork bomb": Barrier("pids limit", frozenset({"EAGAIN"})),
    "write outside": Barrier("read-only root", frozenset({"EROFS"})),
    "fill the disk": Barrier("tmpfs size", frozenset({"ENOSPC"})),
    "read a host file": Barrier("own root, nothing mounted", frozenset({"ENOENT"})),
    "talk to the engine": Barrier("own root, nothing mounted", frozenset({"ENOENT"})),
    "ptrace": Barrier("seccomp", frozenset({"EPERM", "ENOSYS"})),
    "mount": Barrier("seccomp, no capabilities", frozenset({"EPERM"})),
    "user namespace": Barrier("seccomp", frozenset({"EPERM", "ENOSYS"})),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt went."""

    attempt: str
    stopped: bool
    barrier: str
    evidence: str


async def main() -> int:
    """Run all of it."""
    async with SessionManager() as manager:
        verdicts, plots = await watch_untrusted(manager)
        verdicts.append(await memory_bomb(manager))
        show_verdicts(verdicts)
        costs = [
            ("cold terminal: open to first output", await time_cold(manager)),
            ("parked terminal: opening to first output", await time_parked()),
            ("Python cell in a live session: round trip", await time_cells(manager)),
        ]
    show_costs(costs)
    for plot in plots:
        console.print(Text(f"The plot is {plot.relative_to(HERE.parent)}", style="bold"))
    if not plots:
        console.print(Text("No plot arrived", style="bold red"))
    return 0 if plots and all(verdict.stopped for verdict in verdicts) else 1


async def watch_untrusted(manager: SessionManager) -> tuple[list[Verdict], list[Path]]:
    """Run the untrusted script, show each line with the time at which it came, and keep the plots."""
    code = (HERE / "untrusted.py").read_text(encoding="utf-8")
    token = secrets.token_hex(8)
    said = ""
    plots: list[Path] = []
    with tempfile.NamedTemporaryFile("w", prefix="aeolus-secret-") as secret:
        secret.write(token)
        secret.flush()
        tool_input = CodeInterpreterInput(code=code, timeout_s=60, files={"secret-path.txt": secret.name})
        lines = TimedLines()
        async with await manager.open(CodeInterpreterTool(), tool_input) as session:
            async for chunk in session:
                if chunk.stream == "image":
                    plots.append(save_plot(chunk.data, number=len(plots) + 1))
                    lines.add(f"[an image of {len(chunk.data)} bytes]\n")
                else:
                    said += chunk.content
                    lines.add(chunk.content)
            result = await session.finalize()
    console.print(Text(f"The script has {result.status}, in {result.execution_time_ms / 1000:.1f} s\n"))
    verdicts = [verdict(name, said) for name in BARRIERS]
    if token in said:
        verdicts.append(Verdict("read the host's secret", stopped=False, barrier="none", evidence=token))
    return verdicts, plots


def verdict(name: str, said: str) -> Verdict:
    """Tell from what the script said whether an attempt was stopped, and by the barrier that we name."""
    match = re.search(
        rf"^\[(failed|SUCCEEDED)\] {re.escape(name)}: (?:([A-Za-z]+): )?(.*)$", said, re.MULTILINE
    )
    if match is None:
        return Verdict(name, stopped=False, barrier="unknown", evidence="the script did not say")
    outcome, code, words = match.groups()
    evidence = f"{code}: {words}" if code else words
    if outcome != "failed":
        return Verdict(name, stopped=False, barrier="none", evidence=evidence)
    if code not in BARRIERS[name].errors:
        return Verdict(name, stopped=False, barrier="not the one expected", evidence=evidence)
    return Verdict(name, stopped=True, barrier=BARRIERS[name].name, evidence=evidence)


async def memory_bomb(manager: SessionManager) -> Verdict:
    """Take all memory in a session of its own, and see how that ends."""
    limits = Limits(memory_bytes=MEMORY_BOMB_LIMIT, disk_bytes=32 * 1024**2, tmp_bytes=32 * 1024**2)
    session = await manager.open(
        CodeInterpreterTool(), CodeInterpreterInput(code=MEMORY_BOMB, timeout_s=30), limits=limits
    )
    async with session:
        result: CodeResult = await session.finalize()
    status = result.status
    stopped = status.reason == "out_of_memory" and status.limit_hit == LimitName.MEMORY
    evidence = f"limit_hit={status.limit_hit}, {status}"
    return Verdict(
        "memory bomb", stopped=stopped, barrier="memory limit" if stopped else "none", evidence=evidence
    )


async def time_cold(manager: SessionManager) -> list[float]:
    """Time a terminal from asking for it to its first output, in milliseconds."""

    async def once() -> float:
        started = time.perf_counter()
        async with await manager.open(TerminalTool(), TerminalInput(command="echo on")) as session:
            await session.next_chunk()
            return time.perf_counter() - started

    return await repeat(once, COLD_RUNS)


async def time_parked() -> list[float]:
    """Time sessions in containers that wait in the pool, from opening to the first output, in milliseconds."""
    asked = TerminalInput(command="echo on")
    async with SessionManager() as manager:
        await manager.pool.keep(TerminalTool(), asked, minimum=2)

        async def once() -> float:
            await manager.pool.wait_filled()
            await asyncio.sleep(0.5)  # it is to have waited, not to have just started
            started = time.perf_counter()
            async with await manager.open(TerminalTool(), asked) as session:
                await session.next_chunk()
                return time.perf_counter() - started

        return await repeat(once, PARKED_RUNS)


async def time_cells(manager: SessionManager) -> list[float]:
    """Time cells in a kernel that runs already, in milliseconds."""

    async def once() -> float:
        started = time.perf_counter()
        tool_input = CodeInterpreterInput(code="1 + 1", session_id="demo")
        async with await manager.open(CodeInterpreterTool(), tool_input) as session:
            await session.finalize()
            return time.perf_counter() - started

    await once()  # boots the kernel
    return await repeat(once, CELL_RUNS)


async def repeat(once: Callable[[], Awaitable[float]], times: int) -> list[float]:
    """Return the times of several runs, in milliseconds."""
    return [await once() * 1000 for _ in range(times)]


class TimedLines:
    """Shows text as it comes, with the time at the start of each line."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._screen = ScreenFilter(colours=False)
        self._at_start = True

    def add(self, text: str) -> None:
        """Show the next piece."""
        # Boundary: what the sandbox says is shown on a terminal only when it is harmless.
        for line in self._screen.feed(text).splitlines(keepends=True):
            stamp = (
                Text(f"{time.monotonic() - self._started:6.2f} s  ", style="dim")
                if self._at_start
                else Text()
            )
            colour = "red" if line.startswith("[SUCCEEDED]") else ""
            console.print(stamp + Text(line, style=colour), end="", soft_wrap=True)
            self._at_start = line.endswith("\n")


def save_plot(data: bytes, *, number: int) -> Path:
    """Save an image next to the demo."""
    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / f"plot-{number}.png"
    path.write_bytes(data)
    return path


def show_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Print what stopped each attempt."""
    table = Table("forbidden", "", "stopped by", "evidence", title="What the script tried")
    for each in verdicts:
        mark = Text("stopped", style="green") if each.stopped else Text("NOT STOPPED", style="bold red")
        table.add_row(each.attempt, mark, each.barrier, Text(each.evidence))
    console.print(table)


def show_costs(costs: Sequence[tuple[str, list[float]]]) -> None:
    """Print the medians."""
    table = Table("start", "median", "fastest", "slowest", "runs", title="What starts cost on this machine")
    for name, times in costs:
        figures = [f"{value:.1f} ms" for value in (statistics.median(times), min(times), max(times))]
        table.add_row(name, *figures, str(len(times)))
    console.print(table)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except AeolusError as error:
        sys.exit(f"demo: {error}")
