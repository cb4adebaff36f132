"""What the log tailer streams: lines of log files, and notices of what happened to the files."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.tools.log_tailer.fields import LogFields
from aeolus_sandbox.tools.log_tailer.models import LogLevel


class LogFlag(StrEnum):
    """What is to be known of a line beyond its content; the same as `LineFlag` in the container."""

    TRUNCATED = "truncated"
    """It was longer than `max_line_bytes`; `LogChunk.length` says how long."""
    INCOMPLETE = "incomplete"
    """Its end has not been written: the last line of a file that ends without a newline, or was cut."""
    INVALID_UTF8 = "invalid_utf8"
    """Bytes of it are not UTF-8 and became U+FFFD."""
    NULS_REMOVED = "nuls_removed"
    """Runs of zero bytes around it were left out."""
    UNPARSED = "unparsed"
    """It does not fit the format, and is passed on as it is."""
    NOT_OBJECT = "not_object"
    """It is JSON, but not an object."""
    TOO_DEEP = "too_deep"
    """It is JSON that is nested too deeply to be read."""
    BAD_TIME = "bad_time"
    """What should be its time is none."""
    ZONE_ASSUMED = "zone_assumed"
    """Its time names no zone, and that of the input was taken."""
    JOINED = "joined"
    """It was made of several lines."""
    FIELDS_OMITTED = "fields_omitted"
    """Its message and fields were left out, because the whole was too long."""
    HOST_LIST = "host_list"
    """An access line whose client is a list of hosts."""


class LogNoticeKind(StrEnum):
    """What a notice is about."""

    TRUNCATED = "truncated"
    """A file became shorter, and is read from its beginning again."""
    ROTATED = "rotated"
    """A file was replaced by another of its name."""
    APPEARED = "appeared"
    """A file came to be that was waited for, or that matches a pattern."""
    GONE = "gone"
    """A file was removed."""
    LOST = "lost"
    """Something of a file was gone before it could be read."""
    REFUSED = "refused"
    """A path leads out of the mounted folders, or to what is no file."""
    UNREADABLE = "unreadable"
    """A file cannot be opened or read, or what is in it is broken."""
    NULS = "nuls"
    """Zero bytes were left out."""
    SKIPPED = "skipped"
    """A file is not read: compressed in a way that is not known, or the same file under another name."""
    POLLING = "polling"
    """The kernel does not tell of changes here; they are looked for."""
    LIMIT = "limit"
    """A limit was reached: too many files, say."""


class LogNotice(BaseModel):
    """Something about a file that is not a line of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: LogNoticeKind
    text: str
    """The same in words."""
    count: int | None = None
    """How many bytes or files it is about."""


class LogChunk(OutputChunk):
    """One line (or an event of several lines), or a notice."""

    raw: str
    """The line as it stands in the file, without its end; of a notice, nothing."""
    message: str
    """What the line says; where the format does not tell, all of it."""
    level: LogLevel | None = None
    """How severe it is; None: the line does not say."""
    timestamp: datetime | None = None
    """Its time, in UTC; None: the line has none."""
    zone: str | None = None
    """The zone of its time as it stands in the line, or the one that was assumed (`LogFlag.ZONE_ASSUMED`)."""
    fields: LogFields = Field(default_factory=LogFields)
    """What else was read out of it."""
    file: str
    """The file; of a notice about none, nothing."""
    offset: int = Field(default=0, ge=0)
    """Offset of its first byte in the file (in what is compressed, where the file is compressed)."""
    end_offset: int = Field(default=0, ge=0)
    """Offset after its last byte, line end included."""
    sequence: int = Field(ge=1)
    """Counts the session's chunks, from 1."""
    flags: tuple[LogFlag, ...] = ()
    """What is to be known of it."""
    length: int | None = None
    """The true length in bytes of a line that was truncated."""
    notice: LogNotice | None = None
    """What happened, where this is no line."""

    def as_text(self) -> str:
        """Return the line, or the notice in words."""
        return self.raw if self.notice is None else f"[{self.file or 'log tailer'}: {self.notice.text}]"

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return this chunk with every text in it changed, its fields among them."""
        return super().mapped(change).model_copy(update={"fields": self.fields.mapped(change)})

    def with_text(self, text: str) -> Self:
        """Return this chunk with another text in the place of all that was read out of the line."""
        if self.notice is not None:
            return self.model_copy(update={"notice": self.notice.model_copy(update={"text": text})})
        return self.model_copy(update={"raw": text, "message": text, "fields": LogFields()})
