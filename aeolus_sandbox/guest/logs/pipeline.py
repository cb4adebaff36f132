"""From the lines of a file to what is sent of them: joined, parsed, selected."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from aeolus_sandbox.guest.logs.access_lane import AccessLane
from aeolus_sandbox.guest.logs.batches import ITS_OWN_FIELDS, NO_FIELDS, READ_BY, OutgoingLines
from aeolus_sandbox.guest.logs.fields import fields_of
from aeolus_sandbox.guest.logs.formats import parser_for
from aeolus_sandbox.guest.logs.formats.auto import AutoLines
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.frames import Tail
from aeolus_sandbox.guest.logs.joining import Joiner
from aeolus_sandbox.guest.logs.json_lane import JsonLane
from aeolus_sandbox.guest.logs.lines import Block, LineFlag, Parsed
from aeolus_sandbox.guest.logs.patterns import compile_pattern
from aeolus_sandbox.guest.logs.selection import Selection
from aeolus_sandbox.guest.logs.usual import Lane, UsualLines

# As plain numbers: to combine members of an enumeration costs as much as to parse the line.
_UNPARSED: Final = int(LineFlag.UNPARSED)
_JOINED: Final = int(LineFlag.JOINED)
_INVALID_UTF8: Final = int(LineFlag.INVALID_UTF8)
_NOT_PARSED: Final = Parsed(flags=_UNPARSED)
_encode: Final = msgspec.json.Encoder().encode

Parse = Callable[[str], Parsed | None]
Event = tuple[bytes, int, int, int, int | None]
"""One line, or several joined by newlines: its bytes, where it starts and ends, its flags, its true length."""

# A line that a container's engine has written around what the program wrote: Docker's JSON, the Kubernetes CRI's.
_WRAPPED: Final = re.compile(r'\{"log":"|\d{4}-\d\d-\d\dT\S{8,30} std(?:out|err) [FP]')


@dataclass(slots=True)
class Counts:
    """What became of the lines so far."""

    read: int = 0
    matched: int = 0
    dropped: int = 0
    unparsed: int = 0


class FilePipeline:
    """The lines of one file on their way; what it is given must come in order."""

    def __init__(self, request: Tail, selection: Selection, counts: Counts) -> None:
        self._context = ParseContext(zone=ZoneInfo(request.zone), zone_name=request.zone)
        parser = parser_for(request.format, self._context)
        self._parse = parser.parse
        self._lanes = _lanes(parser, request, self._context) if _may_take_lanes(request, selection) else []
        self._selection = selection
        self._counts = counts
        self._joining = None if request.join is None else _Joining(request)
        self._modified_s = 0.0
        self._end = 0

    def take(self, block: Block) -> OutgoingLines:
        """Return what is to be sent of the events that are complete with this block."""
        if block.modified_s != self._modified_s:
            self._modified_s = block.modified_s
            self._context.reference = datetime.fromtimestamp(max(block.modified_s, 0.0), UTC)
        self._counts.read += len(block.lines)
        self._end = block.ends[-1] if block.ends else block.start
        outgoing = OutgoingLines()
        usual = None
        if block.lines and not block.flags and not block.lengths:
            usual = next((taken for lane in self._lanes if (taken := lane.take(block.lines))), None)
        if usual is not None:
            self._take_usual(block, usual, outgoing)
        else:
            events = _events_of(block)
            self._select(events if self._joining is None else self._joining.take(events), outgoing)
        return outgoing

    def _take_usual(self, block: Block, usual: UsualLines, outgoing: OutgoingLines) -> None:
        """Take a block that has been through the fast lane; single lines of it go the usual way."""
        starts, least, levels = [block.start, *block.ends[:-1]], self._selection.level, usual.levels
        begun = 0
        while begun < len(levels):
            if levels[begun] is None:
                line = (block.lines[begun], starts[begun], block.ends[begun], 0, None)
                self._select([line], outgoing)
                begun += 1
                continue
            try:
                after = levels.index(None, begun)
            except ValueError:
                after = len(levels)
            run = slice(begun, after)
            chosen = None if least is None else [level >= least for level in levels[run]]  # type: ignore[operator]
            matched = after - begun if chosen is None else sum(chosen)
            self._counts.matched += matched
            self._counts.dropped += after - begun - matched
            outgoing.add_usual(
                block.lines[run],
                starts[run],
                block.ends[run],
                levels=levels[run],
                times_us=usual.times_us[run],
                zones=usual.zones[run],
                messages=usual.messages[run],
                fields=usual.fields,
                chosen=chosen,
            )
            begun = after

    def is_continued_by(self, block: Block) -> bool:
        """Return whether a block begins where the last one ended; if not, what waits must be flushed before it."""
        return block.start == self._end

    def flush(self) -> OutgoingLines:
        """Return what is to be sent of an event that waits for more lines: none come."""
        outgoing = OutgoingLines()
        if self._joining is not None:
            self._select(self._joining.flush(), outgoing)
        return outgoing

    @property
    def held_from(self) -> int | None:
        """Where an event starts that waits for more lines, or None: whoever goes on later must begin there."""
        return None if self._joining is None else self._joining.held_from

    def _select(self, events: Iterable[Event], outgoing: OutgoingLines) -> None:
        """Add what is to be sent of these events: the loop that a line goes through, without a call too many."""
        selection, parse = self._selection, self._parse
        looks_at_text, looks_inside = selection.looks_at_text, selection.looks_inside
        before, seen, unparsed = len(outgoing.texts), 0, 0
        for data, start, end, flags, length in events:
            seen += 1
            if looks_at_text and not selection.takes_text(data):
                continue
            try:
                text = data.decode()
            except UnicodeDecodeError:
                text, flags = data.decode("utf-8", "replace"), flags | _INVALID_UTF8
            parsed = parse(text) if not flags & _JOINED else _parsed_event(parse, text)
            if parsed is None:
                parsed = _NOT_PARSED
            if parsed.flags:
                unparsed += bool(parsed.flags & _UNPARSED)
                flags |= parsed.flags
            if looks_inside and not selection.takes(parsed, text):
                continue
            if parsed.fields is not None:
                fields = msgspec.Raw(_encode(parsed.fields))
            elif parsed.reader is not None:
                fields = READ_BY[parsed.reader]
            else:
                is_object = parsed.is_object and text[0] == "{" and text[-1] == "}"
                fields = ITS_OWN_FIELDS if is_object else NO_FIELDS
            outgoing.add(
                data,
                start,
                end,
                parsed.level,
                parsed.time_us,
                parsed.zone,
                parsed.message,
                fields,
                flags,
                length,
            )
        matched = len(outgoing.texts) - before
        self._counts.dropped += seen - matched
        self._counts.unparsed += unparsed
        self._counts.matched += matched


def _may_take_lanes(request: Tail, selection: Selection) -> bool:
    return request.join is None and selection.looks_at_levels_alone


def _lanes(parser: LineParser, request: Tail, context: ParseContext) -> list[Lane]:
    if isinstance(parser, AutoLines):
        # A line that follows one of another format is first taken for one like that.
        shapes = ("combined", "clf")
        return [JsonLane(context), AccessLane(context, shapes, is_open=lambda: parser.format == "access")]
    if request.format == "json":
        return [JsonLane(context)]
    return [AccessLane(context, (request.format,))] if request.format in {"clf", "combined"} else []


class _Joining:
    """Events that are made of several lines."""

    def __init__(self, request: Tail) -> None:
        assert request.join is not None
        start = request.join.start
        self._joiner = Joiner(request.join, None if start is None else compile_pattern(start).search)
        self._held: list[bytes] = []
        self._rest: tuple[int, int, int, int | None] = (0, 0, 0, None)

    @property
    def held_from(self) -> int | None:
        return self._rest[0] if self._held else None

    def take(self, events: Iterable[Event]) -> Iterator[Event]:
        """Give the events that are complete: another has begun."""
        for data, start, end, flags, length in events:
            if self._held and self._joiner.continues(data):
                began, _, before, true_length = self._rest
                self._held.append(data)
                self._rest = (began, end, before | flags | _JOINED, true_length or length)
                continue
            if not self._held:
                self._joiner.reset()
                self._joiner.continues(data)
            yield from self._taken()
            self._held, self._rest = [data], (start, end, flags, length)

    def flush(self) -> Iterator[Event]:
        """Give the event that waits."""
        yield from self._taken()
        self._held = []

    def _taken(self) -> Iterator[Event]:
        if self._held:
            yield (b"\n".join(self._held), *self._rest)


def _events_of(block: Block) -> Iterator[Event]:
    start, flags, lengths = block.start, block.flags, block.lengths
    if not flags and not lengths:
        for data, end in zip(block.lines, block.ends, strict=True):
            yield data, start, end, 0, None
            start = end
        return
    for index, (data, end) in enumerate(zip(block.lines, block.ends, strict=True)):
        yield data, start, end, flags.get(index, 0), lengths.get(index)
        start = end


def _parsed_event(parse: Parse, text: str) -> Parsed | None:
    """Return what the first line of an event says, with the lines below it as part of the message."""
    first, *rest = text.split("\n")
    parsed = parse(first)
    if parsed is None:
        return None
    fields = fields_of(parsed, first)
    messages = [first if parsed.message is None else parsed.message, *(_inside(parse, line) for line in rest)]
    return msgspec.structs.replace(
        parsed, fields=fields, message="\n".join(messages), is_object=False, reader=None
    )


def _inside(parse: Parse, line: str) -> str:
    """Return what a program wrote, of a line that goes on with an event; the line itself when nothing is around it."""
    parsed = parse(line) if _WRAPPED.match(line) else None
    return line if parsed is None or parsed.message is None else parsed.message
