"""Text out of bytes that arrive in arbitrary pieces, and long text cut to size."""

from typing import Final

_CONTINUATION_MASK: Final = 0xC0
_CONTINUATION: Final = 0x80
REPLACEMENT: Final = "\ufffd"


class Utf8Boundary:
    """Cuts a byte stream only between characters, so that each piece can be decoded alone.

    At most three bytes (the beginning of a character) are held back until the next piece or the end.
    """

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is held and `data`, up to the last complete character."""
        if self._held:
            data = self._held + data
        held_bytes = _unfinished_bytes(data)
        if held_bytes == 0:
            self._held = b""
            return data
        self._held = data[-held_bytes:]
        return data[:-held_bytes]

    def flush(self) -> bytes:
        """Return what is held at the end of the stream: the beginning of a character that never came."""
        held, self._held = self._held, b""
        return held


def _unfinished_bytes(data: bytes) -> int:
    """Return how many bytes at the end begin a character that is not complete yet (RFC 3629, section 3)."""
    for distance in range(1, min(3, len(data)) + 1):
        byte = data[-distance]
        if byte & _CONTINUATION_MASK == _CONTINUATION:
            continue
        length = _sequence_length(byte)
        return distance if length > distance and _may_begin(data[-distance:]) else 0
    return 0


def _sequence_length(lead: int) -> int:
    if 0xC2 <= lead <= 0xDF:
        return 2
    if 0xE0 <= lead <= 0xEF:
        return 3
    return 4 if 0xF0 <= lead <= 0xF4 else 1


def _may_begin(prefix: bytes) -> bool:
    """Return whether a valid character can begin with these bytes: what cannot is not worth waiting for."""
    if len(prefix) == 1:
        return True
    lead, second = prefix[0], prefix[1]
    lowest = {0xE0: 0xA0, 0xF0: 0x90}.get(lead, 0x80)
    highest = {0xED: 0x9F, 0xF4: 0x8F}.get(lead, 0xBF)
    return lowest <= second <= highest
