"""How log lines lie in the spool: batches as the guest sends them, and chunk by chunk what stands alone.

A batch is one line of our own (the file, and the number of its first chunk), and then the guest's lines as they came:
they are not written anew, and are looked at once, when the batch is taken apart for a few microseconds a line.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final, overload

import msgspec

from aeolus_sandbox.errors import GuestProtocolError
from aeolus_sandbox.guest.frames import FrameError
from aeolus_sandbox.guest.logs.fields import FIELD_READERS
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag
from aeolus_sandbox.streaming.chunks import ChunkBatch, Span
from aeolus_sandbox.tools.log_tailer import replies
from aeolus_sandbox.tools.log_tailer.chunks import LogChunk, LogFlag
from aeolus_sandbox.tools.log_tailer.fields import LogFields
from aeolus_sandbox.tools.log_tailer.models import LogLevel
from aeolus_sandbox.tools.log_tailer.replies import EPOCH, NULL, Line

_ALONE: Final = 0
_BATCH: Final = 1
_FLAGS: Final = tuple((bit, LogFlag[bit.name]) for bit in LineFlag if bit.name is not None)
_LEVELS: Final = {None: None} | {place: LogLevel(name) for place, name in enumerate(LEVELS)}
_SELF: Final = b"null"
_READERS: Final = {f'"{name}"'.encode(): name for name in FIELD_READERS}
_EXACT_US: Final = 2**52
_from_seconds: Final = datetime.fromtimestamp
_NEWLINE: Final = re.compile(rb"\n")
_make: Final = LogChunk.trusted_maker()

_decode_text: Final = msgspec.json.Decoder(str).decode
_new_tuple: Final = tuple.__new__
_line_encoder: Final = msgspec.json.Encoder()


class _Head(msgspec.Struct, array_like=True, frozen=True):
    """The first line of a batch."""

    file: str
    first: int
    """Number of the first chunk."""


_head_decoder: Final = msgspec.json.Decoder(_Head)


def batch_of(file: str, lines: bytes, *, count: int, first: int) -> ChunkBatch:
    """Return the batch of a guest's lines, which are looked at when the batch is taken apart.

    Args:
        file: The file that they are of.
        lines: The lines as they came, each with its newline.
        count: How many there are said to be.
        first: The number of the first chunk.
    """
    head = _line_encoder.encode(_Head(file, first))
    return ChunkBatch(payload=b"%b\n%b" % (head, lines), count=count, tag=_BATCH)


class LogCodec:
    """Log chunks in the spool: whole batches of lines, and single chunks as JSON."""

    merges = False

    def encode(self, chunk: LogChunk) -> tuple[int, bytes]:
        """Return a chunk as a JSON line."""
        return _ALONE, chunk.model_dump_json().encode("utf-8", "replace") + b"\n"

    def decode(self, tag: int, payload: bytes) -> LogChunk:
        """Return the chunk of a JSON line."""
        return LogChunk.model_validate_json(payload)

    def decode_batch(self, tag: int, payload: bytes, start: int) -> "LogBatch":
        """Return the chunks of a batch; the first one's span begins with the batch's own first line.

        Raises:
            GuestProtocolError: A line is not what a guest of ours sends.
        """
        # Boundary: the guest reads hostile files, and may have been taken over.
        try:
            return LogBatch(payload, start)
        except (FrameError, msgspec.MsgspecError) as error:
            msg = f"the log tailer's guest broke the protocol: {error}"
            raise GuestProtocolError(msg) from error


class LogBatch(Sequence[LogChunk]):
    """The chunks of a batch, each made when it is asked for.

    Were they made at once, the collector of garbage would look through thousands of objects again and again, which
    costs as much as making them.
    """

    def __init__(self, payload: bytes, start: int) -> None:
        head_end = payload.index(b"\n") + 1
        head = _head_decoder.decode(payload[:head_end])
        self._file, self._first = head.file, head.first
        self._lines = _decoded(payload[head_end:])
        self._start = start
        self._ends = [start + newline.end() for newline in _NEWLINE.finditer(payload, head_end - 1)]
        self._last_us: int | None = None
        self._moment: datetime | None = None

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, place: int) -> LogChunk: ...
    @overload
    def __getitem__(self, place: slice) -> list[LogChunk]: ...
    def __getitem__(self, place: int | slice) -> LogChunk | list[LogChunk]:
        """Make the chunk, without a call too many: this is what every line costs the host."""
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        line = self._lines[place]
        text, fields, message, flags = (
            str(line.raw, "utf-8", "replace"),
            line.fields,
            line.message,
            line.flags,
        )
        if text[0] == '"':
            text = _unquoted(text)
        time_us = line.time_us
        if time_us != self._last_us:
            self._last_us, self._moment = time_us, None if time_us is None else _moment(time_us)
        begin = self._ends[place] if place else self._start
        return _make(
            {
                "span": _new_tuple(Span, (begin, self._ends[place + 1])),
                "dropped_bytes": 0,
                "raw": text,
                "message": text if message is None else message,
                "level": _LEVELS[line.level],
                "timestamp": self._moment,
                "zone": line.zone,
                "fields": LogFields(text) if fields is NULL else _fields(text, bytes(fields)),
                "file": self._file,
                "offset": line.start,
                "end_offset": line.end,
                "sequence": self._first + place,
                "flags": _flags(flags) if flags else (),
                "length": line.length,
                "notice": None,
            }
        )


def _unquoted(text: str) -> str:
    try:
        return _decode_text(text)
    except msgspec.MsgspecError:  # no guest of ours sends it
        return text


def _decoded(payload: bytes) -> list[Line]:
    lines = replies.decode_lines(payload)
    if len(lines) != payload.count(b"\n"):
        raise FrameError("lines that are no lines")  # noqa: EM101
    return lines


def _moment(time_us: int) -> datetime:
    """Return the moment of so many microseconds since 1970; where a float holds them exactly, the quick way."""
    if 0 <= time_us < _EXACT_US:
        return _from_seconds(time_us / 1_000_000, UTC)
    return EPOCH + timedelta(0, 0, time_us)


def _fields(text: str, fields: bytes) -> LogFields:
    if fields == _SELF:
        return LogFields(text)
    return LogFields(text, _READERS[fields]) if fields in _READERS else LogFields(fields)


@cache
def _flags(bits: int) -> tuple[LogFlag, ...]:
    return tuple(flag for bit, flag in _FLAGS if bits & bit)
