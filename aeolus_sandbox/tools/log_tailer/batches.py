"""How log lines lie in the spool: batches as the guest sends them, and chunk by chunk what stands alone.

A batch is one line of our own (the file, and the number of its first chunk), and then the guest's table and texts as
they came: they are not written anew, and are looked at once, when the batch is taken apart for a few microseconds a line.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import accumulate, count, repeat
from typing import Final, TypeVar, overload

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
from aeolus_sandbox.tools.log_tailer.replies import EPOCH, LineTable

T = TypeVar("T")

_ALONE: Final = 0
_BATCH: Final = 1
_FLAGS: Final = tuple((bit, LogFlag[bit.name]) for bit in LineFlag if bit.name is not None)
_LEVELS: Final = {None: None} | {place: LogLevel(name) for place, name in enumerate(LEVELS)}
_SELF: Final = b"null"
_READERS: Final = {f'"{name}"'.encode(): name for name in FIELD_READERS}
_EXACT_US: Final = 2**52
_from_seconds: Final = datetime.fromtimestamp
_make: Final = LogChunk.trusted_maker()

_span_of: Final = partial(tuple.__new__, Span)
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
    """The chunks of a batch, made when they are asked for, best some dozens at once.

    Were they all made at once, the collector of garbage would look through thousands of objects again and again, which
    costs as much as making them.
    """

    def __init__(self, payload: bytes, start: int) -> None:
        head_end = payload.index(b"\n") + 1
        head = _head_decoder.decode(payload[:head_end])
        table_end = payload.find(b"\n", head_end) + 1 or len(payload)
        self._table = table = replies.decode_table(payload[head_end:table_end])
        self._file, self._first = head.file, head.first
        self._texts, sizes = _texts(payload[table_end:], table)
        ends = list(accumulate(sizes, initial=start + table_end))
        self._spans = list(map(_span_of, zip([start, *ends[1:-1]], ends[1:], strict=True)))
        self._seconds = _exact_seconds(table.times_us)
        self._starts = table.starts
        if len(table.starts) < len(table.ends):
            self._starts = [table.starts[0], *table.ends[:-1]]

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, place: int) -> LogChunk: ...
    @overload
    def __getitem__(self, place: slice) -> list[LogChunk]: ...
    def __getitem__(self, place: int | slice) -> LogChunk | list[LogChunk]:
        if isinstance(place, slice):
            return self._made(place)
        at = range(len(self))[place]
        return self._made(slice(at, at + 1))[0]

    def _made(self, part: slice) -> list[LogChunk]:
        """Make some chunks, without a call too many: this is what every line costs the host."""
        table, file, texts = self._table, self._file, self._texts[part]
        first, _, step = part.indices(len(self))
        seconds = self._seconds
        # The quick way to a moment, and the one that is right for all.
        moments = (
            map(_from_seconds, seconds[part], repeat(UTC)) if seconds else _moments(table.times_us, part)
        )
        return [
            _make(
                {
                    "span": span,
                    "dropped_bytes": 0,
                    "raw": text,
                    "message": text if message is None else message,
                    "level": _LEVELS[level],
                    "timestamp": moment,
                    "zone": zone,
                    "fields": fields,
                    "file": file,
                    "offset": start,
                    "end_offset": end,
                    "sequence": sequence,
                    "flags": _flags(flags) if flags else (),
                    "length": length,
                    "notice": None,
                }
            )
            for sequence, text, span, start, end, message, level, moment, zone, fields, flags, length in zip(
                count(self._first + first, step),
                texts,
                self._spans[part],
                self._starts[part],
                table.ends[part],
                _column(table.messages, part),
                _column(table.levels, part),
                moments,
                _column(table.zones, part),
                _fields(texts, table.fields, part),
                _column(table.flags, part),
                _column(table.lengths, part),
            )
        ]


def _texts(data: bytes, table: LineTable) -> tuple[list[str], list[int]]:
    """Return the texts of the lines, and how many bytes each is with its newline.

    Raises:
        FrameError: They are not as many, or not as long, as the table says.
    """
    if table.sizes:
        sizes = [size + 1 for size in table.sizes]
        ends = list(accumulate(sizes))
        pieces = [data[end - size : end - 1] for size, end in zip(sizes, ends, strict=True)]
        is_whole = ends[-1] == len(data)
        texts = [piece.decode("utf-8", "replace") for piece in pieces]
    else:
        # One after the other they come to the same: a newline ends whatever character was cut off before it.
        texts = data.decode("utf-8", "replace").split("\n")
        is_whole = not texts.pop() and len(texts) == len(table.ends)
        lines: list[str] | list[bytes] = texts if data.isascii() else data.split(b"\n")[:-1]
        sizes = [len(line) + 1 for line in lines]
    if not is_whole:
        raise FrameError("lines that are no lines")  # noqa: EM101
    return texts, sizes


def _column(values: list[T], part: slice) -> Iterable[T]:
    """Return a part of a column, in which one value stands for all."""
    return values[part] if len(values) > 1 else repeat(values[0])


def _moments(times_us: list[int | None], part: slice) -> Iterable[datetime | None]:
    return map(_moment, times_us[part]) if len(times_us) > 1 else repeat(_moment(times_us[0]))


def _exact_seconds(times_us: list[int | None]) -> list[float] | None:
    """Return times in seconds, where floats hold all of them to the microsecond."""
    known = [time_us for time_us in times_us if time_us is not None]
    is_exact = len(known) == len(times_us) > 1 and min(known) >= 0 and max(known) < _EXACT_US
    return [time_us / 1_000_000 for time_us in known] if is_exact else None


def _moment(time_us: int | None) -> datetime | None:
    return None if time_us is None else EPOCH + timedelta(0, 0, time_us)


def _fields(texts: list[str], fields: list[msgspec.Raw], part: slice) -> Iterable[LogFields]:
    if len(fields) > 1:
        return map(_fields_of, texts, fields[part])
    told = bytes(fields[0])
    if told == _SELF:
        return map(LogFields, texts)
    return (
        map(LogFields, texts, repeat(_READERS[told]))
        if told in _READERS
        else [LogFields(told) for _ in texts]
    )


def _fields_of(text: str, fields: msgspec.Raw) -> LogFields:
    told = bytes(fields)
    if told == _SELF:
        return LogFields(text)
    return LogFields(text, _READERS[told]) if told in _READERS else LogFields(told)


@cache
def _flags(bits: int) -> tuple[LogFlag, ...]:
    return tuple(flag for bit, flag in _FLAGS if bits & bit)
