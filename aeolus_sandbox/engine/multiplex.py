"""Docker's framing of stdout and stderr on one connection, for containers without a TTY.

Each frame is a header of 8 bytes (stream number, three zeroes, big-endian length) and a payload:
https://docs.docker.com/reference/api/engine/ ("Stream format" of the attach call).
Whether a stream is framed is known from the container's settings, never guessed from its bytes.
"""

import struct
from typing import Final

from aeolus_sandbox.errors import EngineError
from aeolus_sandbox.pieces import Piece, StreamName

_HEADER: Final = struct.Struct(">BxxxL")
_STREAMS: Final[dict[int, StreamName]] = {1: "stdout", 2: "stderr"}


class FrameDecoder:
    """Turns the bytes of a framed stream into pieces, however they are cut.

    A payload is passed on as it comes, so that a frame that claims a huge length costs no memory.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream: StreamName = "stdout"
        self._left_bytes = 0

    def feed(self, data: bytes | memoryview) -> list[Piece]:
        """Return the pieces that `data` brings; they are copies, so that its memory can be used again.

        What neighbouring frames of one stream hold is one piece: a program that writes little at a time makes many.

        Raises:
            EngineError: A header names a stream that does not exist.
        """
        view = memoryview(data)
        pieces: list[Piece] = []
        payloads: list[memoryview] = []
        position, end = 0, len(view)
        while position < end:
            if self._left_bytes == 0:
                before = self._stream
                position = self._read_header(view, position)
                if self._stream != before and payloads:
                    pieces.append(Piece(before, b"".join(payloads)))
                    payloads = []
                continue
            payload = view[position : position + self._left_bytes]
            position += len(payload)
            self._left_bytes -= len(payload)
            payloads.append(payload)
        if payloads:
            pieces.append(Piece(self._stream, b"".join(payloads)))
        return pieces

    @property
    def is_inside_frame(self) -> bool:
        """Whether the stream would be cut if it ended now."""
        return self._left_bytes > 0 or bool(self._header)

    def _read_header(self, view: memoryview, position: int) -> int:
        """Read what there is of a header, and return where it ends."""
        if self._header or len(view) - position < _HEADER.size:
            taken = view[position : position + _HEADER.size - len(self._header)]
            self._header += taken
            if len(self._header) < _HEADER.size:
                return position + len(taken)
            number, length = _HEADER.unpack(self._header)
            self._header = b""
            position += len(taken)
        else:
            number, length = _HEADER.unpack_from(view, position)
            position += _HEADER.size
        stream = _STREAMS.get(number)
        if stream is None:
            msg = f"the engine sent a frame for stream {number}, which does not exist: the stream is corrupt"
            raise EngineError(msg)
        self._stream, self._left_bytes = stream, length
        return position
