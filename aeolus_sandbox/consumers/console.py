"""A consumer that shows a run to whoever sits at the terminal."""

import sys
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final, Self

from aeolus_sandbox.consumers.console_paint import columns_of, paint_for
from aeolus_sandbox.consumers.console_view import ConsoleView, Shown
from aeolus_sandbox.consumers.pictures import PictureFolder, drawing_protocol
from aeolus_sandbox.consumers.thread_writer import ThreadWriter
from aeolus_sandbox.consumers.weight import weight
from aeolus_sandbox.events import Done, Error, StreamEvent

_MAX_WEIGHT: Final = 256 * 1024


class ConsoleConsumer:
    """Shows text as it comes, calls of tools with what they print, failures, and the usage at the end.

    It writes in a thread; a terminal that is slow slows the run. When nobody reads the output any more (a closed
    pipe), the next event raises `BrokenPipeError`, once: the run ends, or goes on unseen where that is ignored.
    Boundary: no control sequence of a tool or the model reaches the terminal; see `console_lines`.
    """

    def __init__(
        self,
        *,
        colors: bool | None = None,
        reasoning: bool = True,
        tool_details: bool = True,
        tool_output: bool = True,
        plots_folder: Path | None = None,
        stream: IO[str] | None = None,
    ) -> None:
        """Make one.

        Args:
            colors: Whether there are colours; None: as the terminal and its environment (`NO_COLOR`) say.
            reasoning: Whether the model's thinking is shown.
            tool_details: Whether arguments are shown, and the results of calls that showed no output.
            tool_output: Whether what tools print is shown while they run.
            plots_folder: Where images are saved; None: a new folder among the system's temporary files. A terminal
                that can (kitty's and iTerm2's protocols) draws them too.
            stream: Where all goes; None: `sys.stdout`.
        """
        self._colors = colors
        self._shown = Shown(reasoning=reasoning, tool_details=tool_details, tool_output=tool_output)
        self._pictures = PictureFolder(plots_folder)
        self._stream = stream
        self._view: ConsoleView | None = None
        self._writer = ThreadWriter(self._write, max_weight=_MAX_WEIGHT)
        self._is_broken = False

    def with_colors(self, wanted: bool) -> Self:
        """Say whether there are colours, before the first event."""
        self._colors = wanted
        return self

    def with_reasoning(self, wanted: bool) -> Self:
        """Say whether the model's thinking is shown, before the first event."""
        self._shown = replace(self._shown, reasoning=wanted)
        return self

    def with_tool_details(self, wanted: bool) -> Self:
        """Say whether arguments and results are shown, before the first event."""
        self._shown = replace(self._shown, tool_details=wanted)
        return self

    def with_tool_output(self, wanted: bool) -> Self:
        """Say whether what tools print is shown while they run, before the first event."""
        self._shown = replace(self._shown, tool_output=wanted)
        return self

    def on_event(self, event: StreamEvent) -> Awaitable[None] | None:
        """Show an event. See `StreamConsumer.on_event`.

        Raises:
            OSError: It cannot be shown; raised once.
        """
        has_room = self._writer.put(event, weight=weight(event))
        if isinstance(event, Done | Error):
            return self._writer.flush()
        return None if has_room else self._writer.wait_for_room()

    async def aclose(self) -> None:
        """Wait until all is shown; the stream stays open.

        Raises:
            OSError: It cannot be shown; raised once.
        """
        await self._writer.flush()

    # In a thread.

    def _write(self, events: Sequence[StreamEvent]) -> None:
        if self._is_broken:
            return
        stream = self._stream if self._stream is not None else sys.stdout
        if self._view is None:
            paint = paint_for(stream, colours=self._colors)
            self._view = ConsoleView(self._shown, paint, self._pictures, drawing_protocol(stream))
        columns = columns_of(stream)
        text = "".join([self._view.text_of(event, columns) for event in events])
        try:
            stream.write(_encodable(text, stream))
            stream.flush()
        except (OSError, ValueError):  # ValueError: it was closed
            self._is_broken = True
            raise


def _encodable(text: str, stream: IO[str]) -> str:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
