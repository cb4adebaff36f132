"""What container engines put around the lines of a program: the Kubernetes CRI's text and Docker's json-file.

Both cut a long line into pieces (containerd and Docker at 16 KiB). Nothing is held back and nothing is left out: each
piece is passed on as a line of its own, flagged `INCOMPLETE`, with the field `partial`; the line that ends the message
has all of it as its message, flagged `JOINED`, and its level and fields are those of the whole. So a filter of levels
gives the whole once, where it has a level. Of a message that is longer than `MAX_MESSAGE_CHARACTERS`, the beginning is
kept, flagged `TRUNCATED`; its pieces still are all there.
"""

import re
from typing import Final

import msgspec

from aeolus_sandbox.guest.logs.fields import fields_of
from aeolus_sandbox.guest.logs.formats.base import LineParser, ParseContext
from aeolus_sandbox.guest.logs.frames import MAX_LINE_BYTES
from aeolus_sandbox.guest.logs.lines import LineFlag, Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamps

MAX_MESSAGE_CHARACTERS: Final = MAX_LINE_BYTES
"""The most of a message that is put together out of pieces."""

# https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
_CRI: Final = re.compile(r"(\d{4}-\d\d-\d\dT\S{8,30}) (stdout|stderr) ([FP])(?::\S{0,64})?(?: |$)", re.ASCII)

_STREAMS: Final = ("stdout", "stderr")
_PIECE: Final = int(LineFlag.INCOMPLETE)
_JOINED: Final = int(LineFlag.JOINED)
_TRUNCATED: Final = int(LineFlag.TRUNCATED)


class _DockerLine(msgspec.Struct):
    log: str
    stream: str
    time: str
    attrs: dict[str, str] | None = None
    """Labels and variables that the container was started with, where its engine was told to write them."""


_docker_decoder: msgspec.json.Decoder[_DockerLine] = msgspec.json.Decoder(_DockerLine)


class CriLines:
    """Lines of the Kubernetes container runtime interface: stamp, stream, `F` or `P` (a piece), and the text."""

    def __init__(self, context: ParseContext, inner: LineParser) -> None:
        self._contents = _Contents(context, inner)

    def parse(self, line: str) -> Parsed | None:
        """Return what the program's line holds, or None when it is not wrapped like this."""
        found = _CRI.match(line)
        if not found:
            return None
        stamp, stream, tag = found.groups()
        return self._contents.parse(line[found.end() :], stream, stamp, is_piece=tag == "P")


class DockerLines:
    """Lines of Docker's json-file driver: objects with `log`, `stream` and `time`."""

    def __init__(self, context: ParseContext, inner: LineParser) -> None:
        self._contents = _Contents(context, inner)

    def parse(self, line: str) -> Parsed | None:
        """Return what the program's line holds, or None when it is not wrapped like this."""
        try:
            entry = _docker_decoder.decode(line)
        except (ValueError, RecursionError):
            return None
        if entry.stream not in _STREAMS:
            return None
        is_piece = not entry.log.endswith("\n")
        text = entry.log.removesuffix("\n").removesuffix("\r")
        parsed = self._contents.parse(text, entry.stream, entry.time, is_piece=is_piece)
        if entry.attrs and parsed.fields is not None:
            parsed.fields["attrs"] = entry.attrs
        return parsed


class _Contents:
    """What is inside, of both streams of one container."""

    def __init__(self, context: ParseContext, inner: LineParser) -> None:
        self._stamps = Stamps(context)
        self._inner = inner
        self._pieces = {stream: _Pieces() for stream in _STREAMS}

    def parse(self, text: str, stream: str, stamp: str, *, is_piece: bool) -> Parsed:
        """Return what the text holds, with the time from outside where it has none, and with its stream."""
        pieces = self._pieces[stream]
        if is_piece:
            pieces.add(text)
            return self._timed(Parsed(text, fields={"stream": stream, "partial": True}, flags=_PIECE), stamp)
        flags = 0
        if pieces.texts:
            text, flags = pieces.whole(text)
        parsed = self._inner.parse(text) or Parsed(fields={})
        if parsed.fields is None:
            parsed.fields = fields_of(parsed, text)
            parsed.is_object, parsed.reader = False, None
        if parsed.message is None:
            parsed.message = text
        parsed.fields["stream"] = stream
        parsed.flags |= flags
        return self._timed(parsed, stamp)

    def _timed(self, parsed: Parsed, stamp: str) -> Parsed:
        if parsed.time_us is None:
            parsed.time_us, parsed.zone, flags = self._stamps.parse(stamp)
            parsed.flags |= flags
        return parsed


class _Pieces:
    """The pieces of a message that has not ended."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._room = MAX_MESSAGE_CHARACTERS
        self._flags = _JOINED

    def add(self, text: str) -> None:
        """Keep one more, as far as there is room."""
        if len(text) > self._room:
            text = text[: self._room]
            self._flags |= _TRUNCATED
        if text or not self.texts:
            self.texts.append(text)
        self._room -= len(text)

    def whole(self, last: str) -> tuple[str, int]:
        """Return the message with its last piece, and its flags; the next piece begins another."""
        self.add(last)
        whole = "".join(self.texts)
        flags = self._flags
        self.texts = []
        self._room = MAX_MESSAGE_CHARACTERS
        self._flags = _JOINED
        return whole, flags
