"""How `tail` shows lines: to people, or as one JSON object a line; many at once, because a terminal is slow."""

import asyncio
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

from aeolus_sandbox.cli.exits import say
from aeolus_sandbox.cli.present import without_surrogates
from aeolus_sandbox.cli.sink import shows_colours
from aeolus_sandbox.streaming.screen import RESET, harmless
from aeolus_sandbox.tools.log_tailer import LogChunk, LogLevel, LogResult

_HELD_CHUNKS: Final = 5000
"""How many chunks wait for the writer before reading does."""
_COLOURS: Final = {
    LogLevel.TRACE: "\x1b[2m",
    LogLevel.DEBUG: "\x1b[2m",
    LogLevel.NOTICE: "\x1b[36m",
    LogLevel.WARNING: "\x1b[33m",
    LogLevel.ERROR: "\x1b[31m",
    LogLevel.CRITICAL: "\x1b[1;31m",
    LogLevel.ALERT: "\x1b[1;31m",
    LogLevel.EMERGENCY: "\x1b[1;7;31m",
}


class LogView(Protocol):
    """Shows one reading; all calls block, and come one after the other."""

    def chunks(self, chunks: Sequence[LogChunk]) -> None:
        """Show some chunks."""
        ...

    def result(self, result: LogResult) -> None:
        """Show how it ended."""
        ...


class LogLines:
    """The lines as they are in the files; on a terminal in the colours of their levels, and harmless."""

    def __init__(self, *, headlines: bool) -> None:
        """Make one for stdout.

        Args:
            headlines: Whether to say which file the next lines are of, as tail(1) does for several.
        """
        self._out = sys.stdout
        self._is_screen = self._out.isatty()
        self._colours = shows_colours(self._out)
        self._headlines = headlines
        self._file: str | None = None

    def chunks(self, chunks: Sequence[LogChunk]) -> None:
        """Write the lines, under a headline where another file goes on."""
        text: list[str] = []
        for chunk in chunks:
            if chunk.notice is not None:
                self._write(text)
                text.clear()
                say(_on_one_line(chunk.notice.text))
                continue
            if self._headlines and chunk.file != self._file:
                text.append(self._headline(chunk.file))
            text.append(self._line(chunk))
        self._write(text)

    def result(self, result: LogResult) -> None:
        """Say what was read, and how it ended."""
        say(_on_one_line(result.as_text().replace("\n", " ")))

    def _headline(self, file: str) -> str:
        start = "" if self._file is None else "\n"
        self._file = file
        # In a pipe too: a name with a line end in it would be lines of a log.
        return f"{start}==> {_on_one_line(file)} <==\n"

    def _line(self, chunk: LogChunk) -> str:
        if not self._is_screen:
            return f"{chunk.raw}\n"
        colour = _COLOURS.get(chunk.level, "") if self._colours and chunk.level is not None else ""
        shown = _shown(chunk.raw)
        return f"{colour}{shown}{RESET}\n" if colour else f"{shown}\n"

    def _write(self, text: Sequence[str]) -> None:
        if text:
            self._out.buffer.write("".join(text).encode("utf-8", "replace"))
            self._out.buffer.flush()


def _shown(text: str) -> str:
    """Return a line as a terminal may get it; a carriage return alone would write over what stands there already."""
    return harmless(text).replace("\r", "\u240d")


def _on_one_line(text: str) -> str:
    return _shown(text).replace("\n", "\u240a")


class LogJsonLines:
    """Every chunk and then the result, each as one JSON object on a line of ASCII."""

    def chunks(self, chunks: Sequence[LogChunk]) -> None:
        """Write the chunks."""
        self._write([{"type": "chunk", **chunk.model_dump(mode="json")} for chunk in chunks])

    def result(self, result: LogResult) -> None:
        """Write the result."""
        self._write([{"type": "result", **result.model_dump(mode="json")}])

    def _write(self, records: Sequence[object]) -> None:
        lines = (json.dumps(without_surrogates(record), ensure_ascii=True) + "\n" for record in records)
        sys.stdout.buffer.write("".join(lines).encode("ascii"))
        sys.stdout.buffer.flush()


@contextmanager
def stdout_watched(on_close: Callable[[], object]) -> Iterator[None]:
    """Call back once nobody reads our stdout any more; only a pipe tells (poll(2), POLLERR).

    Without it, whoever follows a log would notice with the next line, which may be long in coming.
    """
    descriptor = _pipe_of(sys.stdout)
    if descriptor is None:
        yield
        return
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(descriptor)  # it stays ready
        on_close()

    loop.add_reader(descriptor, end)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


def _pipe_of(stream: TextIO) -> int | None:
    try:
        descriptor = stream.fileno()
        return descriptor if stat.S_ISFIFO(os.fstat(descriptor).st_mode) else None
    except (OSError, ValueError):  # it is none of the system's, or closed
        return None


class ViewQueue:
    """Chunks on their way to a view: whoever reads them does not wait for each to be written."""

    def __init__(self, view: LogView) -> None:
        self._view = view
        self._held: list[LogChunk] = []
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False

    async def put(self, chunk: LogChunk) -> None:
        """Hand a chunk on, waiting while the view is far behind."""
        self._held.append(chunk)
        self._more.set()
        while len(self._held) >= _HELD_CHUNKS and not self._ended:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """Say that nothing more comes."""
        self._ended = True
        self._more.set()

    async def run(self) -> None:
        """Write what comes, until the end.

        Raises:
            BrokenPipeError: Nobody reads it any more.
        """
        try:
            while self._held or not self._ended:
                await self._more.wait()
                self._more.clear()
                taken, self._held = self._held, []
                self._room.set()
                await asyncio.to_thread(self._view.chunks, taken)
                if self._held or self._ended:
                    self._more.set()
        finally:
            self._ended = True
            self._room.set()
