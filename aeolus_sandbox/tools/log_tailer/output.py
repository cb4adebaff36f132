"""What the guest of the log tailer writes, taken line by line or by size: bounded, and each byte looked at once."""

from typing import Final

from aeolus_sandbox.guest.frames import FrameError

MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""The longest frame; the last one names every file."""


class GuestOutput:
    """The bytes that have come and were not taken."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Take in what has come."""
        self._held += data

    def line(self) -> bytes | None:
        """Take a line, without its newline; None: it is not complete.

        Raises:
            FrameError: It is longer than a frame may be.
        """
        end = self._held.find(b"\n", self._searched)
        if max(end, len(self._held) if end < 0 else 0) > MAX_FRAME_BYTES:
            raise FrameError(f"a frame is over the limit of {MAX_FRAME_BYTES} bytes")  # noqa: EM102
        if end < 0:
            self._searched = len(self._held)
            return None
        self._searched = 0
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        return line

    def block(self, size: int) -> bytes | None:
        """Take so many bytes; None: they are not all there."""
        if len(self._held) < size:
            return None
        with memoryview(self._held) as held:
            block = bytes(held[:size])
        del self._held[:size]
        return block
