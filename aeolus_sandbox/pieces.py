"""Raw output on its way: some bytes that a process wrote, and where to."""

from typing import Literal, NamedTuple

StreamName = Literal["stdout", "stderr"]


class Piece(NamedTuple):
    """Some bytes that a process wrote, and where to."""

    stream: StreamName
    data: bytes
