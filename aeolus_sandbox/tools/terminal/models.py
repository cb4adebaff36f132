"""What the terminal tool takes, streams and ends with."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.streaming.chunks import OutputChunk, Span
from aeolus_sandbox.streaming.sandbox import DEFAULT_COLS, DEFAULT_ROWS
from aeolus_sandbox.tools.files import FileContent
from aeolus_sandbox.tools.terminal.command_check import Finding

TerminalStream = Literal["stdout", "stderr", "combined"]


class TerminalInput(BaseModel):
    """A command and how to run it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    command: str | tuple[str, ...] = Field(min_length=1)
    """A command line for `sh -c`, or the program and its arguments, which no shell sees."""
    cwd: str | None = None
    """The working directory; None: `/workspace`."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables to add to the image's."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Time limit in seconds; it can only shorten the manager's wall time."""
    tty: bool = True
    """Whether the command gets a terminal; stdout and stderr are then one stream, and input is echoed."""
    cols: int = Field(default=DEFAULT_COLS, ge=1, le=65535)
    """Columns of the terminal."""
    rows: int = Field(default=DEFAULT_ROWS, ge=1, le=65535)
    """Rows of the terminal."""
    files: dict[str, FileContent] = Field(default_factory=dict)
    """Files to put into the workspace first: relative path to content."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        return ("sh", "-c", self.command) if isinstance(self.command, str) else tuple(self.command)


class TerminalChunk(OutputChunk):
    """Some output of a command, cut only between characters."""

    stream: TerminalStream
    """Where it was written to; a terminal has only `stdout`. `combined`: a whole run of both, in order."""
    data: bytes = Field(exclude=True, repr=False)
    """The bytes as they came."""

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def text(self) -> str:
        """The bytes as text; what is not UTF-8 is U+FFFD, one for each bad byte sequence."""
        return self.data.decode("utf-8", "replace")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        """Take the text for the bytes where only the text was written down (JSON)."""
        if isinstance(value, dict) and "text" in value:
            value = dict(value)
            text = value.pop("text")
            value.setdefault("data", text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return value

    @classmethod
    def combined(cls, chunks: Sequence[Self]) -> Self:
        """Return all of the output as one chunk."""
        streams = {chunk.stream for chunk in chunks}
        stream: TerminalStream = streams.pop() if len(streams) == 1 else "combined"
        return cls(stream=stream, data=b"".join(chunk.data for chunk in chunks))

    def flow(self) -> str:
        """Return the stream: output runs on from chunk to chunk."""
        return self.stream

    def as_text(self) -> str:
        """Return the text."""
        return self.text

    def with_text(self, text: str) -> Self:
        """Return this chunk with another text."""
        data = text.encode("utf-8", "replace")
        return type(self)(stream=self.stream, data=data, span=self.span, dropped_bytes=self.dropped_bytes)


_make: Final = TerminalChunk.trusted_maker()


def terminal_chunk(stream: TerminalStream, data: bytes) -> TerminalChunk:
    """Return a chunk of output that was read, for less than what checking it again costs."""
    return _make({"span": Span(0, 0), "dropped_bytes": 0, "stream": stream, "data": data})


class TerminalCodec:
    """Terminal chunks in the spool: the bytes as they are, with the stream as the tag."""

    merges = True
    _STREAMS: tuple[TerminalStream, ...] = ("stdout", "stderr", "combined")

    def encode(self, chunk: TerminalChunk) -> tuple[int, bytes]:
        """Return the stream's number and the bytes."""
        return self._STREAMS.index(chunk.stream), chunk.data

    def decode(self, tag: int, payload: bytes) -> TerminalChunk:
        """Return the chunk."""
        return terminal_chunk(self._STREAMS[tag], payload)


class TerminalResult(BaseModel):
    """How a command ended, and the gist of what it printed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exit_code: int | None
    """The exit code; 128 + n after signal n."""
    status: ExitStatus
    """Why it ended."""
    duration_ms: float
    """Time from the launch to the end, in milliseconds."""
    output: str
    """Head and tail of what a reader of the screen would see, with a marker where something was left out."""
    stdout_bytes: int
    """How many bytes were written to stdout (or the terminal)."""
    stderr_bytes: int
    """How many bytes were written to stderr."""
    invalid_bytes: int
    """How many byte sequences were not UTF-8."""
    findings: tuple[Finding, ...] = ()
    """What the command check found, where its policy is to warn."""

    def with_output(self, output: str) -> Self:
        """Return the result with another text in the place of what the command printed."""
        return self.model_copy(update={"output": output})

    def as_text(self) -> str:
        """Return the result in words, for a model or a log; never empty."""
        output = self.output if self.output.strip() else "(no output)"
        return f"{output.rstrip()}\n{self.conclusion()}"

    def conclusion(self) -> str:
        """Return in words how it ended, without what it printed."""
        return f"[{self.status}]"
