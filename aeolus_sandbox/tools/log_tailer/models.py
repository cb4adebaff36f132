"""What the log tailer takes and ends with; what it streams, `chunks` says."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.guest.logs.frames import MAX_LINE_BYTES
from aeolus_sandbox.guest.logs.lines import LEVELS
from aeolus_sandbox.guest.logs.patterns import compile_pattern

MAX_PATHS: Final = 1000
"""How many paths one input names."""
_FILES_NAMED: Final = 20
"""How many files a result names in words."""


class LogFormat(StrEnum):
    """How lines are written."""

    JSON = "json"
    """One JSON object a line."""
    SYSLOG = "syslog"
    """RFC 3164 or RFC 5424."""
    CLF = "clf"
    """The Common Log Format of web servers."""
    COMBINED = "combined"
    """The Combined Log Format: common, with referer and agent."""
    STRUCTURED = "structured"
    """logfmt, and other lines of `key=value`."""
    AUTO = "auto"
    """Whatever each line looks like."""
    RAW = "raw"
    """Any text: nothing is read out of it."""


class LogLevel(StrEnum):
    """How severe a line is, on one scale for all loggers; ordered by severity."""

    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    NOTICE = "notice"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"
    ALERT = "alert"
    EMERGENCY = "emergency"

    @property
    def severity(self) -> int:
        """Place on the scale, from 0 for `trace` to 8 for `emergency`."""
        return _SEVERITIES[self]

    def __lt__(self, other: str) -> bool:
        return self.severity < _SEVERITIES[other]

    def __le__(self, other: str) -> bool:
        return self.severity <= _SEVERITIES[other]

    def __gt__(self, other: str) -> bool:
        return self.severity > _SEVERITIES[other]

    def __ge__(self, other: str) -> bool:
        return self.severity >= _SEVERITIES[other]


_SEVERITIES: Final[Mapping[str, int]] = {name: severity for severity, name in enumerate(LEVELS)}


def _checked_pattern(text: str) -> str:
    compile_pattern(text)
    return text


RePattern = Annotated[str, AfterValidator(_checked_pattern)]
"""An RE2 expression: see `aeolus_sandbox.guest.logs.patterns`."""
Moment = AwareDatetime | Annotated[timedelta, Field(ge=timedelta(0))]
"""A point in time with its zone, or how long before now."""


class LogFilter(BaseModel):
    """Which lines to pass on: those that meet all that is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    level: LogLevel | None = None
    """The least level."""
    keeps_unknown_level: bool = False
    """Whether lines without a level pass a filter of levels."""
    pattern: RePattern | None = None
    """RE2 expression that must be found in the line."""
    exclude: RePattern | None = None
    """RE2 expression that must not be found in the line."""
    since: Moment | None = None
    """The earliest time."""
    until: Moment | None = None
    """The latest time."""
    equals: dict[str, str] = Field(default_factory=dict, max_length=100)
    """Fields and what they must be, as text (`{"status": "404", "user.id": "7"}`)."""

    @field_validator("equals", mode="before")
    @classmethod
    def _as_texts(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {name: _as_text(item) for name, item in value.items()}


def _as_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


class Multiline(BaseModel):
    """How lines are joined to events, such as an error with its stack trace."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    start: RePattern | None = None
    """RE2 expression of a line that begins an event; None: whatever does not look like a continuation."""
    max_lines: int = Field(default=500, ge=1, le=10_000)
    """The longest event, in lines."""
    wait_s: float = Field(default=1.0, gt=0, le=60)
    """How long an event waits for its next line when nothing more is written."""


class LogPosition(BaseModel):
    """How far one file has been read; with what tells the file from its successor under the same name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    device: int
    inode: int
    offset: int = Field(ge=0)
    """Offset of the first byte that has not been read (in what is compressed, where the file is compressed)."""
    head_bytes: int = Field(default=0, ge=0)
    """How many bytes of the file's beginning `head_hash` is of."""
    head_hash: str = ""
    """SHA-256 of the file's beginning, in hexadecimal digits."""
    done: bool = False
    """Whether it was read to its end, and more was not expected: it was rotated away, or nothing was followed."""


class LogCursor(BaseModel):
    """Where to go on reading: `LogTailerInput(from_cursor=result.cursor)` neither loses a line nor repeats one.

    As JSON (`model_dump_json`, `model_validate_json`) it can be kept anywhere.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    positions: tuple[LogPosition, ...] = ()


class LogTailerInput(BaseModel):
    """Which log files to read, and how."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    path: str | tuple[str, ...] = Field(min_length=1)
    """A file or a pattern (`/var/log/app/*.log`), or several. A relative one is relative to the host's working
    directory; `~` means nothing."""
    glob: bool | None = None
    """Whether the paths are patterns; None: one with `*`, `?` or `[` that names no file is."""
    follow: bool = False
    """Whether to wait for what is written after the end, through rotations, until the session is cancelled or its time
    is over."""
    format: LogFormat = LogFormat.AUTO
    """How the lines are written."""
    filter: LogFilter = Field(default_factory=LogFilter)
    """Which lines to pass on."""
    tail: int | None = Field(default=None, ge=0, le=10_000_000)
    """How many lines of the end of each file that is there already to begin with; None: all."""
    from_cursor: LogCursor | None = None
    """Where an earlier session ended, to go on there."""
    multiline: Multiline | None = None
    """How lines are joined to events; None: every line stands alone."""
    timezone: str = "UTC"
    """IANA name of the zone of times that name none."""
    max_line_bytes: int = Field(default=64 * 1024, ge=64, le=MAX_LINE_BYTES)
    """The longest line; the rest of a longer one is left out, and the line says so."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Time limit in seconds; it can only shorten the manager's wall time. The result has its cursor."""
    watch: Literal["auto", "poll"] = "auto"
    """How changes are noticed: told by the kernel and looked for, or only looked for."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, as they were given."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @model_validator(mode="after")
    def _paths_are_names(self) -> Self:
        if len(self.paths) > MAX_PATHS:
            msg = f"{len(self.paths)} paths are more than {MAX_PATHS}: use patterns"
            raise ValueError(msg)
        for path in self.paths:
            if not path or "\0" in path:
                msg = f"{path!r} is no path"
                raise ValueError(msg)
        return self


class LogResult(BaseModel):
    """What was read, and where to go on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: ExitStatus
    """Why it ended: a session that followed is `cancelled` or `timed_out`."""
    lines_read: int
    lines_matched: int
    """How many were passed on."""
    lines_dropped: int
    """How many the filter left out."""
    lines_unparsed: int
    """How many did not fit the format, and were passed on as they are."""
    bytes_read: int
    files: tuple[str, ...] = ()
    """The files that were read."""
    rotations: int = 0
    """How many times a file was replaced or truncated meanwhile."""
    cursor: LogCursor = LogCursor()
    """Where to go on."""
    resumed: bool = False
    """Whether it went on where an earlier session, or an earlier attempt at this run, had ended."""
    complete: bool = True
    """Whether the tailer itself counted; False: it was stopped before it could, and the counts are of what came."""
    notices_left_out: int = 0
    """How many notices were not passed on, because there were too many."""

    def with_output(self, output: str) -> Self:
        """Return the result: it holds nothing of what was read."""
        return self

    def as_text(self) -> str:
        """Return the result in words, for a model or a log; never empty."""
        unparsed = f", {self.lines_unparsed} unparsed" if self.lines_unparsed else ""
        rotations = f", {self.rotations} rotations" if self.rotations else ""
        counts = f"{self.lines_matched} of {self.lines_read} lines{unparsed}{rotations}"
        named = ", ".join(self.files[:_FILES_NAMED])
        more = len(self.files) - _FILES_NAMED
        files = f" of {named}{f' and {more} more files' if more > 0 else ''}" if named else ""
        return f"[{counts}{files}]\n[{self.status}]"
