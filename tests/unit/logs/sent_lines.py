"""The lines of a batch, taken out of its columns again by another way than the host's."""

from typing import Any

import msgspec

from aeolus_sandbox.guest.logs.batches import OutgoingLines
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES, MAX_BATCH_LINES
from aeolus_sandbox.guest.logs.lines import LineTable


class SentLine(msgspec.Struct):
    """One line as it was sent."""

    text: bytes
    start: int
    end: int
    level: int | None
    time_us: int | None
    zone: str | None
    message: Any
    fields: Any
    """As JSON has them: an object; None: the text is the object; a string: the name of a reader."""
    flags: int
    length: int | None


def sent_lines(outgoing: OutgoingLines) -> list[SentLine]:
    """Return the lines of all batches, after what holds for every batch was checked."""
    found: list[SentLine] = []
    for data, count, end in outgoing.batches():
        assert 0 < count <= MAX_BATCH_LINES
        assert len(data) <= MAX_BATCH_BYTES
        lines = _lines(data)
        assert len(lines) == count
        assert lines[-1].end == end
        found += lines
    assert [line.end for line in found] == outgoing.ends
    return found


def _lines(data: bytes) -> list[SentLine]:
    head, _, texts = data.partition(b"\n")
    table = msgspec.json.decode(head, type=LineTable)
    count = len(table.ends)
    columns: list[list[Any]] = [
        table.levels, table.times_us, table.zones, table.messages, table.fields, table.flags, table.lengths,
    ]  # fmt: skip
    columns = [column * count if len(column) == 1 else column for column in columns]
    starts = table.starts if len(table.starts) == count else [table.starts[0], *table.ends[:-1]]
    lines = []
    for place in range(count):
        size = table.sizes[place] if table.sizes else texts.index(b"\n")
        text, texts = texts[:size], texts[size + 1 :]
        level, time_us, zone, message, fields, flags, length = (column[place] for column in columns)
        lines.append(
            SentLine(
                text=text,
                start=starts[place],
                end=table.ends[place],
                level=level,
                time_us=time_us,
                zone=zone,
                message=msgspec.json.decode(message) if isinstance(message, msgspec.Raw) else message,
                fields=msgspec.json.decode(fields),
                flags=flags,
                length=length,
            )
        )
    assert texts == b""
    return lines
