"""Lines as they are sent: in columns, and cut into batches that are bounded, whatever is in them."""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.fields import FIELD_READERS
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES, MAX_BATCH_LINES
from aeolus_sandbox.guest.logs.lines import LineFlag, LineTable

NO_FIELDS: Final = msgspec.Raw(b"{}")
ITS_OWN_FIELDS: Final = msgspec.Raw(b"null")
"""The fields of a line that is a JSON object."""
READ_BY: Final = {name: msgspec.Raw(f'"{name}"'.encode()) for name in FIELD_READERS}
"""The fields of a line that one of the readers reads them out of."""

_FIELDS_OMITTED: Final = int(LineFlag.FIELDS_OMITTED)
_JOINED: Final = int(LineFlag.JOINED)
_NUMBERS_BYTES: Final = 256
"""More than the numbers, the zone and the punctuation of one line take."""
_ESCAPED: Final = 6
"""How many bytes a character takes at most as JSON."""
_TEXT_ROOM: Final = MAX_BATCH_BYTES - 2 * _NUMBERS_BYTES
_encode: Final = msgspec.json.Encoder().encode


class OutgoingLines:
    """Neighbouring lines of one file that are to be sent, in columns."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        """The lines as they stand in the file; joined ones with the newlines between them."""
        self._starts: list[int] = []
        self.ends: list[int] = []
        """Where each of them ends in the file."""
        self._levels: list[int | None] = []
        self._times_us: list[int | None] = []
        self._zones: list[str | None] = []
        self._messages: list[Any] = []
        self._fields: list[msgspec.Raw] = []
        self._flags: list[int] = []
        self._lengths: list[int | None] = []
        self._bounds: list[int] = []
        """How many bytes each line takes at most when it is sent."""

    def add(
        self,
        text: bytes,
        start: int,
        end: int,
        level: int | None = None,
        time_us: int | None = None,
        zone: str | None = None,
        message: str | None = None,
        fields: msgspec.Raw = NO_FIELDS,
        flags: int = 0,
        length: int | None = None,
    ) -> None:
        """Add a line; one that is too long with its message and fields goes without them."""
        said: Any = message
        bound = len(text) + len(bytes(fields)) + (0 if message is None else _ESCAPED * len(message))
        if bound > _TEXT_ROOM:
            said = msgspec.Raw(_encode(message))
            bound = len(text) + len(bytes(fields)) + len(bytes(said))
            if bound > _TEXT_ROOM:
                said, flags, bound = "", flags | _FIELDS_OMITTED, len(text)
                fields = fields if fields == ITS_OWN_FIELDS else NO_FIELDS
        self.texts.append(text)
        self._starts.append(start)
        self.ends.append(end)
        self._levels.append(level)
        self._times_us.append(time_us)
        self._zones.append(zone)
        self._messages.append(said)
        self._fields.append(fields)
        self._flags.append(flags)
        self._lengths.append(length)
        self._bounds.append(bound + _NUMBERS_BYTES)

    def add_usual(
        self,
        texts: list[bytes],
        starts: list[int],
        ends: list[int],
        *,
        levels: list[int | None],
        times_us: list[int | None],
        zones: list[str | None],
        messages: list[str],
        fields: msgspec.Raw,
        chosen: list[bool] | None,
    ) -> None:
        """Add many lines, each with its message in it, whose fields are read in one way; only the chosen ones."""
        columns: tuple[Sequence[Any], ...] = (texts, starts, ends, levels, times_us, zones, messages)
        if chosen is not None:
            columns = tuple(list(compress(column, chosen)) for column in columns)
        count = len(columns[0])
        own = (
            self.texts, self._starts, self.ends, self._levels, self._times_us, self._zones, self._messages,
        )  # fmt: skip
        for column, more in zip(own, columns, strict=True):
            column.extend(more)
        self._fields += [fields] * count
        self._flags += [0] * count
        self._lengths += [None] * count
        # The message is a part of the text, and has no more characters than that has bytes.
        self._bounds += [len(text) * (1 + _ESCAPED) + _NUMBERS_BYTES for text in columns[0]]

    def batches(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield the batches that the lines make: their bytes, how many lines they are, and the end of the last."""
        bounds, lines = self._bounds, len(self.texts)
        first = 0
        while first < lines:
            after = min(lines, first + MAX_BATCH_LINES)
            if sum(bounds[first:after]) > MAX_BATCH_BYTES:
                after, size = first + 1, bounds[first]
                while (size := size + bounds[after]) <= MAX_BATCH_BYTES:
                    after += 1
            yield self._batch(first, after), after - first, self.ends[after - 1]
            first = after

    def _batch(self, first: int, after: int) -> bytes:
        texts, ends, starts = self.texts[first:after], self.ends[first:after], self._starts[first:after]
        flags = self._flags[first:after]
        table = LineTable(
            ends=ends,
            starts=starts[:1] if starts[1:] == ends[:-1] else starts,
            levels=_column(self._levels[first:after]),
            times_us=_column(self._times_us[first:after]),
            zones=_column(self._zones[first:after]),
            messages=_column(self._messages[first:after]),
            fields=_column(self._fields[first:after]),
            flags=_column(flags),
            lengths=_column(self._lengths[first:after]),
            sizes=[len(text) for text in texts] if any(each & _JOINED for each in set(flags)) else [],
        )
        return b"%b\n%b\n" % (_encode(table), b"\n".join(texts))


def _column(values: list[Any]) -> list[Any]:
    """Return a column as it is sent: what all lines have in common, once."""
    return values[:1] if values.count(values[0]) == len(values) else values
