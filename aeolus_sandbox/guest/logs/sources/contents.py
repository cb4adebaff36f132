"""What is in a file, plain or compressed, as a stream that can wait for more (RFC 1952 for gzip)."""

import hashlib
import os
import zlib
from typing import Final

HEAD_BYTES: Final = 256
"""How many bytes of a file's beginning tell it from another."""
_READ_BYTES: Final = 64 * 1024
_GZIP: Final = b"\x1f\x8b"
_OTHER_KINDS: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2"}
_UTF16: Final = (b"\xff\xfe", b"\xfe\xff")


def kind_of(head: bytes) -> str:
    """Return what a file is by its beginning: `plain`, `gzip`, `utf16`, or the name of another compression."""
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_UTF16):
        return "utf16"
    for magic, kind in _OTHER_KINDS.items():
        if head.startswith(magic) and (kind != "bzip2" or head[4:10] == b"1AY&SY"):
            return kind
    return "plain"


def is_too_short(head: bytes) -> bool:
    """Return whether a beginning may still become that of another kind."""
    magics = (_GZIP, *_UTF16, *_OTHER_KINDS, b"BZh91AY&SY")
    return any(len(head) < len(magic) and magic.startswith(head) for magic in magics)


def head_hash(head: bytes) -> str:
    """Return what a position says of a beginning."""
    return hashlib.sha256(head).hexdigest() if head else ""


class Content:
    """What is in a plain file."""

    is_compressed = False
    fault: str | None = None
    """Why nothing more can be read."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Offset of the next byte of what is in it."""
        self.is_at_end = False
        """Whether the last `read` has met the end of what is written."""

    @property
    def file_offset(self) -> int:
        """Offset of the next byte of the file."""
        return self.offset

    @property
    def is_whole(self) -> bool:
        """Whether it ends where a content may end."""
        return True

    def read(self, fd: int, max_bytes: int) -> bytes:
        """Return what comes next, without going on; `advance` does."""
        data = os.pread(fd, max_bytes, self.offset)
        self.is_at_end = len(data) < max_bytes
        return data

    def advance(self, data: bytes) -> None:
        """Go on behind what was read."""
        self.offset += len(data)

    def skip_to(self, fd: int, offset: int) -> bytes | None:
        """Go to an offset, and return up to `HEAD_BYTES` before it; None: the content is shorter."""
        if os.fstat(fd).st_size < offset:
            return None
        begin = max(0, offset - HEAD_BYTES)
        before = os.pread(fd, offset - begin, begin)
        self.offset = offset
        return before if len(before) == offset - begin else None


class GzipContent(Content):
    """What is in a gzip file: of one member or several, and perhaps still being written."""

    is_compressed = True

    def __init__(self) -> None:
        super().__init__()
        self._file_offset = 0
        self._member = zlib.decompressobj(wbits=31)
        self._input = b""
        self._has_output = False

    @property
    def file_offset(self) -> int:
        """Offset of the next byte of the file."""
        return self._file_offset

    @property
    def is_whole(self) -> bool:
        """Whether the last member has its end, with the right checksum."""
        return self._member.eof and self.fault is None

    def read(self, fd: int, max_bytes: int) -> bytes:
        """Return what comes next; this goes on in the file already."""
        while self.fault is None:
            if not self._input and not self._has_output:
                self._input = os.pread(fd, _READ_BYTES, self._file_offset)
                self._file_offset += len(self._input)
                if not self._input:
                    break
            data = self._unpack(max_bytes)
            if data:
                self.is_at_end = False
                return data
        self.is_at_end = True
        return b""

    def skip_to(self, fd: int, offset: int) -> bytes | None:
        """Go to an offset, unpacking what is before it."""
        before = b""
        while self.offset < offset:
            data = self.read(fd, min(256 * 1024, offset - self.offset))
            if not data:
                return None
            self.advance(data)
            before = (before + data)[-HEAD_BYTES:]
        return before

    def _unpack(self, max_bytes: int) -> bytes:
        if self._member.eof and not self._next_member():
            return b""
        try:
            data = self._member.decompress(self._input, max_bytes)
        except zlib.error as error:
            self.fault = f"it is damaged: {error}"
            self._input, self._has_output = b"", False
            return b""
        self._input = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
        # Output may be left inside the object even when its input is used up.
        self._has_output = len(data) == max_bytes and not self._member.eof
        return data

    def _next_member(self) -> bool:
        """Begin the next member; what is no member after the end is padding, which gzip(1) ignores too."""
        self._has_output = False
        if self._input[:1] == _GZIP[:1]:
            self._member = zlib.decompressobj(wbits=31)
            return True
        self._input = b""
        return False


def content_of(fd: int) -> tuple[Content, bytes]:
    """Return a file's content from its beginning, and up to `HEAD_BYTES` of that beginning."""
    head = os.pread(fd, HEAD_BYTES, 0)
    if kind_of(head) != "gzip":
        return Content(), head
    probe, unpacked = GzipContent(), b""
    while len(unpacked) < HEAD_BYTES:
        data = probe.read(fd, HEAD_BYTES - len(unpacked))
        if not data:
            break
        unpacked += data
    return GzipContent(), unpacked
