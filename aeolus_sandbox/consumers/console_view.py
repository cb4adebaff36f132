"""What the console consumer makes of each event: text for a terminal or a file. It blocks where it saves images."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import JsonValue

from aeolus_sandbox.consumers.console_lines import Gutter, Prose, one_line
from aeolus_sandbox.consumers.console_paint import Paint, Style
from aeolus_sandbox.consumers.pictures import Picture, PictureFolder, Protocol, drawn, pictures_in
from aeolus_sandbox.events import (
    AggregatedUsage,
    Content,
    Done,
    Error,
    ModelRetried,
    Reasoning,
    SessionStarted,
    StreamEvent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolOutput,
    TurnCompleted,
    UsageUpdate,
)
from aeolus_sandbox.storage.event_json import to_json

_SHORT: Final = 200
_NAME: Final = 80
_MESSAGE: Final = 2_000


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown."""

    reasoning: bool = True
    tool_details: bool = True
    """Arguments, and results of calls that showed no output."""
    tool_output: bool = True
    """What tools print while they run."""


@dataclass(slots=True)
class _Call:
    number: int
    gutter: Gutter
    has_shown: bool = False
    pictures: set[bytes] = field(default_factory=set)


class ConsoleView:
    """Turns events into text, one after the other."""

    def __init__(
        self, shown: Shown, paint: Paint, pictures: PictureFolder, drawing: Protocol | None = None
    ) -> None:
        """Begin.

        Args:
            shown: What is shown.
            paint: The colours.
            pictures: Where images are saved.
            drawing: How the terminal draws images; None: it cannot.
        """
        self._shown, self._paint, self._pictures, self._drawing = shown, paint, pictures, drawing
        self._columns: int | None = None
        self._prose = Prose()
        self._prose_type: str | None = None
        self._line_is_open = False
        self._writer: _Call | None = None
        self._begin_run()

    def text_of(self, event: StreamEvent, columns: int | None = None) -> str:
        """Return what to write for an event; `columns` is the width of the terminal, if it is one."""
        self._columns = columns
        return "".join(self._parts(event))

    def _begin_run(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._numbers = 0
        self._usage: AggregatedUsage | None = None

    def _parts(self, event: StreamEvent) -> Iterator[str]:
        match event:
            case Content() | Reasoning():
                yield from self._prose_parts(event)
            case ToolCallStarted() | ToolOutput() | ToolCallCompleted() | ToolCallFailed():
                yield from self._tool_parts(event)
            case ModelRetried():
                why = one_line(event.error, _MESSAGE)
                yield from self._remark(
                    f"! attempt {event.attempt} failed: {why}; next one in {event.wait_s:.1f} s"
                )
            case UsageUpdate():
                self._usage = event.snapshot
            case Done() | Error():
                yield from self._ended(event)
            case SessionStarted():
                self._begin_run()
            case TurnCompleted():
                yield from self._new_line()

    def _tool_parts(
        self, event: ToolCallStarted | ToolOutput | ToolCallCompleted | ToolCallFailed
    ) -> Iterator[str]:
        match event:
            case ToolCallStarted():
                yield from self._started(event)
            case ToolOutput():
                yield from self._output(event)
            case ToolCallCompleted():
                yield from self._completed(event)
            case ToolCallFailed():
                yield from self._failed(event)

    def _prose_parts(self, event: Content | Reasoning) -> Iterator[str]:
        is_reasoning = isinstance(event, Reasoning)
        if is_reasoning and not self._shown.reasoning:
            return
        text = ""
        if self._prose_type != event.type:
            yield from self._new_line()
            self._prose_type = event.type
            text = "thinking: " if is_reasoning else ""
        text += self._prose.feed(event.content)
        if text:
            self._line_is_open = not text.endswith("\n")
            yield self._paint("reasoning", text) if is_reasoning else text

    def _new_line(self) -> Iterator[str]:
        """End whatever line is open, with what was held back of it."""
        if self._writer is not None:
            yield self._writer.gutter.give_way()
            self._writer = None
        if self._prose_type is not None:
            rest = self._prose.flush()
            self._prose_type = None
            if rest or self._line_is_open:
                yield rest + "\n"
            self._line_is_open = False

    def _remark(self, text: str, style: Style = "remark") -> Iterator[str]:
        yield from self._new_line()
        yield self._paint(style, text) + "\n"

    def _call(self, call_id: str) -> _Call:
        call = self._calls.get(call_id)
        if call is None:
            self._numbers += 1
            call = self._calls[call_id] = _Call(self._numbers, Gutter(f"{self._numbers:3}", self._paint))
        return call

    def _started(self, event: ToolCallStarted) -> Iterator[str]:
        call = self._call(event.tool_call_id)
        details = f" {one_line(event.arguments, _SHORT)}" if self._shown.tool_details else ""
        yield from self._remark(f"{call.number:3} > {one_line(event.tool_name, _NAME)}{details}", "tool")

    def _output(self, event: ToolOutput) -> Iterator[str]:
        if not self._shown.tool_output:
            return
        call = self._call(event.tool_call_id)
        call.has_shown = True
        if self._writer is not call:
            yield from self._new_line()
            self._writer = call
        yield from self._dropped(call, event.chunk)
        pictures = list(pictures_in(event.chunk)) if isinstance(event.chunk, dict) else []
        if pictures:
            yield from self._show_pictures(call, pictures)
        else:
            yield call.gutter.feed(event.text, self._columns)

    def _dropped(self, call: _Call, chunk: JsonValue) -> Iterator[str]:
        dropped = chunk.get("dropped_bytes") if isinstance(chunk, dict) else None
        if isinstance(dropped, int) and dropped > 0:
            yield call.gutter.end_line()
            yield call.gutter.feed(f"[{dropped} bytes of output were dropped here]\n", self._columns)

    def _show_pictures(self, call: _Call, pictures: list[Picture]) -> Iterator[str]:
        yield call.gutter.end_line()
        for picture in pictures:
            digest = hashlib.sha256(picture.data).digest()
            if digest in call.pictures:
                continue
            call.pictures.add(digest)
            drawing = None if self._drawing is None else drawn(picture, self._drawing)
            if drawing is not None:
                yield drawing + "\n"
            yield call.gutter.feed(f"{self._where(picture)}\n", self._columns)

    def _where(self, picture: Picture) -> str:
        try:
            path = self._pictures.save(picture)
        except OSError as error:
            return f"[an image, {picture.in_words}, could not be saved: {error}]"
        return f"[saved {path} ({picture.in_words})]"

    def _completed(self, event: ToolCallCompleted) -> Iterator[str]:
        call = self._call(event.tool_call_id)
        yield from self._end_output(call)
        pictures = list(pictures_in(event.result))
        if pictures:
            yield from self._new_line()
            yield from self._show_pictures(call, pictures)
        details = ""
        if self._shown.tool_details and not call.has_shown and not pictures:
            result = event.result if isinstance(event.result, str) else to_json(event.result)
            details = f": {one_line(result, _SHORT)}"
        mark = "\u2713" if event.success else "\u2717"
        style: Style = "good" if event.success else "bad"
        name = one_line(event.tool_name, _NAME)
        yield from self._remark(
            f"{call.number:3} {mark} {name}, {event.duration_ms / 1000:.2f} s{details}", style
        )
        self._calls.pop(event.tool_call_id, None)

    def _failed(self, event: ToolCallFailed) -> Iterator[str]:
        call = self._call(event.tool_call_id)
        yield from self._end_output(call)
        name, why = one_line(event.tool_name, _NAME), one_line(event.error, _MESSAGE)
        yield from self._remark(f"{call.number:3} \u2717 {name} failed: {why}", "bad")
        self._calls.pop(event.tool_call_id, None)

    def _end_output(self, call: _Call) -> Iterator[str]:
        if self._writer is not call:
            yield from self._new_line()
        yield call.gutter.flush(self._columns)

    def _ended(self, event: Done | Error) -> Iterator[str]:
        yield from self._new_line()
        if isinstance(event, Error):
            yield from self._remark(f"error: {one_line(event.message, _MESSAGE)}", "bad")
        if self._usage is not None:
            yield from self._remark(_in_words(self._usage))
        self._begin_run()


def _in_words(usage: AggregatedUsage) -> str:
    cached = f", {usage.cache_read_tokens:,} from the cache" if usage.cache_read_tokens else ""
    written = f", {usage.cache_written_tokens:,} cached" if usage.cache_written_tokens else ""
    requests = f"{usage.requests:,} request{'' if usage.requests == 1 else 's'}"
    return (
        f"{requests}: {usage.input_tokens:,} tokens sent{cached}{written}, {usage.output_tokens:,} received"
    )
