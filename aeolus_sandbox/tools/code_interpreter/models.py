"""What the code interpreter takes, streams and ends with."""

import base64
from collections.abc import Callable
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.tools.files import FileContent

CodeStream = Literal["stdout", "stderr", "image", "display", "result", "error", "status"]

MAX_CODE_CHARACTERS: Final = 4 * 1024 * 1024
"""The longest code; what is longer belongs into a file."""
_TEXT_IMAGES: Final = frozenset({"image/svg+xml"})


class CodeInterpreterInput(BaseModel):
    """A piece of code and where to run it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str = Field(max_length=MAX_CODE_CHARACTERS)
    """The code; an empty one is allowed and does nothing."""
    language: str = "python"
    """The language of the kernel."""
    session_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Names a kernel that is kept, with its variables and files, for later calls of the same id; None: a new one.
    The container has the limits of the first call; calls of one id run one after the other."""
    timeout_s: float | None = Field(default=None, gt=0)
    """Time limit in seconds; it can only shorten the manager's wall time. The code is interrupted, then killed."""
    files: dict[str, FileContent] = Field(default_factory=dict)
    """Files to put into the workspace first: relative path to content."""

    @field_validator("code", mode="before")
    @classmethod
    def _valid_unicode(cls, code: object) -> object:
        """Replace what is not text: a lone surrogate cannot be sent to any kernel."""
        if isinstance(code, str):
            return code.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return code


class CodeChunk(OutputChunk):
    """One piece of output of the code."""

    stream: CodeStream
    """What it is: printed text, an image, another display, the value of the last expression, an error, or news of
    the kernel itself (`status`)."""
    content: str
    """The text; base64 for images other than SVG, JSON text for JSON."""
    mime_type: str = "text/plain"
    """The type of `content`."""
    alternatives: dict[str, str] = Field(default_factory=dict)
    """The same output in its other types, such as `text/plain` beside `text/html`."""
    display_id: str | None = None
    """Name of a display that can be updated."""
    update: bool = False
    """Whether it replaces an earlier display of the same `display_id`."""
    background: bool = False
    """Whether code of an earlier call, which still runs, said this (or nobody knows who). Whose output it is, is
    for the kernel to say: ipykernel counts what a thread prints as the output of the call that runs at the time,
    and only between two calls as that of the one that started it."""

    @property
    def data(self) -> bytes:
        """The content as bytes: an image decoded, a text as UTF-8."""
        if self._is_picture:
            try:
                return base64.b64decode(self.content, validate=False)
            except ValueError:  # the kernel sent something else under this name
                return b""
        return self.content.encode("utf-8", "replace")

    def flow(self) -> str | None:
        """Return the stream of printed text, which runs on from chunk to chunk; all else stands alone."""
        return self.stream if self.stream in {"stdout", "stderr"} else None

    def as_text(self) -> str:
        """Return the text; of an image, what it is and how large."""
        if self._is_picture:
            return self.alternatives.get("text/plain") or f"[{self.mime_type}, {len(self.data)} bytes]"
        return self.content

    def with_text(self, text: str) -> Self:
        """Return this chunk with a text in the place of its content; an image becomes a display of that text."""
        stream = "display" if self.stream == "image" else self.stream
        update = {"stream": stream, "content": text, "mime_type": "text/plain", "alternatives": {}}
        return self.model_copy(update=update)

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return this chunk with its texts changed; the bytes of an image stay."""
        changed = super().mapped(change)
        pictures = {mime: self.alternatives[mime] for mime in self.alternatives if _is_picture(mime)}
        update: dict[str, object] = {"alternatives": changed.alternatives | pictures}
        if self._is_picture:
            update["content"] = self.content
        return changed.model_copy(update=update)

    @property
    def _is_picture(self) -> bool:
        return _is_picture(self.mime_type)


def _is_picture(mime_type: str) -> bool:
    return mime_type.startswith("image/") and mime_type not in _TEXT_IMAGES


class CodeError(BaseModel):
    """An error that ended the code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The kind, such as `ZeroDivisionError`; `KernelDied` when the kernel's process ended."""
    value: str
    """What it says."""
    traceback: tuple[str, ...] = ()
    """Where it came from, line by line, with the kernel's colours."""


class CodeResult(BaseModel):
    """How the code ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    success: bool
    """Whether it ran to its end without an error."""
    status: ExitStatus
    """Why it ended: an error of the code is `exited` with code 1."""
    execution_time_ms: float
    """Time from sending the code to its end, in milliseconds."""
    error: CodeError | None = None
    """The error, if there was one."""
    result: str | None = None
    """The value of the last expression, as text."""
    output: str = ""
    """Head and tail of what it printed, with a marker where something was left out."""
    images: int = 0
    """How many images there were."""
    environment_recreated: bool = False
    """Whether variables and files of earlier calls were lost since the last call of this `session_id`."""

    def with_output(self, output: str) -> Self:
        """Return the result with another text in the place of all that the code printed, returned or raised."""
        hidden = None if self.error is None else CodeError(name="Error", value="")
        return self.model_copy(update={"output": output, "result": None, "error": hidden})

    def as_text(self) -> str:
        """Return the result in words, for a model or a log; never empty."""
        parts = [self.output.rstrip()] if self.output.strip() else []
        if self.result is not None:
            parts.append(self.result)
        if self.images:
            parts.append(f"[{self.images} image{'s' if self.images > 1 else ''}]")
        if self.error is not None:
            parts.append(f"{self.error.name}: {self.error.value}")
        return "\n".join([*(parts or ["(no output)"]), f"[{self.status}]"])
