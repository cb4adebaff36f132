"""Lines as they are sent: encoded, and cut into batches that are bounded, whatever is in them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES, MAX_BATCH_LINES
from aeolus_sandbox.guest.logs.lines import LineFlag, LogLine

_FIELDS_OMITTED: Final = int(LineFlag.FIELDS_OMITTED)
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class EncodedLines:
    """Neighbouring lines of one file that are to be sent."""

    lines: list[bytes] = field(default_factory=list)
    """Each a `LogLine` as JSON, without a newline."""
    ends: list[int] = field(default_factory=list)
    """Where each of them ends in the file."""

    def add(self, line: LogLine) -> None:
        """Add a line; one that is too long with its fields goes without them."""
        encoded = _encode(line)
        if len(encoded) >= MAX_BATCH_BYTES:
            encoded = _encode(_without_fields(line))
        self.lines.append(encoded)
        self.ends.append(line.end)

    def batches(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield the batches that the lines make: their bytes, how many lines they are, and the end of the last."""
        first = size = 0
        for place, line in enumerate(self.lines):
            if place - first == MAX_BATCH_LINES or size + len(line) + 1 > MAX_BATCH_BYTES:
                yield self._batch(first, place)
                first, size = place, 0
            size += len(line) + 1
        if self.lines:
            yield self._batch(first, len(self.lines))

    def _batch(self, first: int, after: int) -> tuple[bytes, int, int]:
        return b"\n".join(self.lines[first:after]) + b"\n", after - first, self.ends[after - 1]


def _without_fields(line: LogLine) -> LogLine:
    raw: Any = line.raw
    fields: Any = None if isinstance(raw, msgspec.Raw) else msgspec.Raw(b"{}")
    flags = line.flags | _FIELDS_OMITTED
    return msgspec.structs.replace(line, message="", fields=fields, flags=flags)
