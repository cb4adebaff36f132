"""What the code interpreter takes, streams and ends with."""

import base64
from collections.abc import Callable
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from aeolus_sandbox.engine.packages import MAX_PACKAGES, parse_packages
from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding
from aeolus_sandbox.tools.code_interpreter.artifacts import Artifact
from aeolus_sandbox.tools.code_interpreter.charts import CHART_TYPE, Chart, parse_chart
from aeolus_sandbox.tools.code_interpreter.languages import language_named
from aeolus_sandbox.tools.code_interpreter.tables import TABLE_TYPE, Table, parse_table
from aeolus_sandbox.tools.files import FileContent

CodeStream = Literal["stdout", "stderr", "image", "display", "result", "error", "input", "status"]

MAX_CODE_CHARACTERS: Final = 4 * 1024 * 1024
"""The longest code; what is longer belongs into a file."""
_FILES_NAMED: Final = 20
"""How many files a result names in words."""
_TEXT_IMAGES: Final = frozenset({"image/svg+xml"})
_BINARY_FAMILIES: Final = ("image/", "audio/", "video/", "font/")
_BINARY_TYPES: Final = frozenset(
    {"application/pdf", "application/octet-stream", "application/zip", "application/vnd.apache.arrow.stream"}
)


class CodeInterpreterInput(BaseModel):
    """A piece of code and where to run it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

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
    packages: tuple[str, ...] = Field(default=(), max_length=MAX_PACKAGES)
    """Packages of the language that the code needs beside those of its image, by name, with versions where the
    language's index has several: `pandas==2.2.*`. The first call with a set of them has an image built with network
    (it needs `CapabilityKind.INSTALL_PACKAGES`, and its clock stands still); later calls find it at once. A kernel
    that is kept has those of its first call; later ones may leave them out."""
    allow_stdin: bool = False
    """Whether the code may ask for input (Python's `input()`), which `session.send_stdin` then answers, one line a
    question. Without it the session takes no input, and code that asks fails or reads the end of input."""
    chart_data: bool = False
    """Whether images of charts come with the data in them (`CodeChunk.chart`), where the kernel can tell: matplotlib
    in Python."""

    @model_validator(mode="after")
    def _packages_are_names(self) -> Self:
        if self.packages:
            image = language_named(self.language).image
            self.__dict__["packages"] = parse_packages(image, self.packages)  # frozen for everybody else
        return self

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
    """What it is: printed text, an image, another display, the value of the last expression, an error, a question that
    the code waits for an answer to (`input`), or news of the kernel itself (`status`)."""
    content: str
    """The text; base64 for what is no text (images other than SVG, PDF), JSON text for JSON; of a question, its
    prompt."""
    mime_type: str = "text/plain"
    """The type of `content`: the richest that there is."""
    alternatives: dict[str, str] = Field(default_factory=dict)
    """The same output in its other types, such as `text/plain` beside `text/html`."""
    metadata: dict[str, str] = Field(default_factory=dict)
    """What the code said about the output: by type or by name, as JSON text."""
    width: int | None = None
    """Width of an image in pixels, as the head of its data says, or else the code."""
    height: int | None = None
    """Height of an image in pixels."""
    omitted: dict[str, int] = Field(default_factory=dict)
    """Types that the output had too and that were left out, because they were too large or nested too deeply: their
    size in bytes, and 0 where that is not known."""
    truncated: bool = False
    """Whether something of the output is missing here: what `omitted` names, or a part of a traceback."""
    password: bool = False
    """Whether the answer to a question should not be shown while it is typed."""
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
        """The content as bytes: an image or another binary type decoded, a text as UTF-8."""
        if self._is_binary:
            try:
                return base64.b64decode(self.content, validate=False)
            except ValueError:  # the kernel sent something else under this name
                return b""
        return self.content.encode("utf-8", "replace")

    @property
    def chart(self) -> Chart | None:
        """The data in a chart; see `CodeInterpreterInput.chart_data`."""
        return parse_chart(self._as_type(CHART_TYPE))

    @property
    def table(self) -> Table | None:
        """The data in a DataFrame or a Series: its first rows and columns."""
        return parse_table(self._as_type(TABLE_TYPE))

    def flow(self) -> str | None:
        """Return the stream of printed text, which runs on from chunk to chunk; all else stands alone."""
        return self.stream if self.stream in {"stdout", "stderr"} else None

    def as_text(self) -> str:
        """Return the text; of an image, what it is and how large; of a question, its prompt."""
        if self._is_binary:
            return self.alternatives.get("text/plain") or f"[{self.mime_type}, {len(self.data)} bytes]"
        return self.content or ("[the code asks for input]" if self.stream == "input" else "")

    def with_text(self, text: str) -> Self:
        """Return this chunk with a text in the place of its content; an image becomes a display of that text."""
        stream = "display" if self.stream == "image" else self.stream
        nothing: dict[str, object] = {"alternatives": {}, "metadata": {}, "width": None, "height": None}
        update = nothing | {"stream": stream, "content": text, "mime_type": "text/plain"}
        return self.model_copy(update=update)

    def mapped(self, change: Callable[[str], str]) -> Self:
        """Return this chunk with its texts changed; the bytes of an image stay."""
        changed = super().mapped(change)
        binary = {mime: self.alternatives[mime] for mime in self.alternatives if _is_binary(mime)}
        update: dict[str, object] = {"alternatives": changed.alternatives | binary}
        if self._is_binary:
            update["content"] = self.content
        return changed.model_copy(update=update)

    @property
    def _is_binary(self) -> bool:
        return _is_binary(self.mime_type)

    def _as_type(self, mime_type: str) -> str | None:
        return self.content if self.mime_type == mime_type else self.alternatives.get(mime_type)


def _is_binary(mime_type: str) -> bool:
    """Return whether a type travels as base64."""
    return mime_type in _BINARY_TYPES or (
        mime_type.startswith(_BINARY_FAMILIES) and mime_type not in _TEXT_IMAGES
    )


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
    """The value of the last expression, as text; of a long one, head and tail with a marker between them."""
    output: str = ""
    """Head and tail of what it printed, with a marker where something was left out."""
    images: int = 0
    """How many images there were."""
    findings: tuple[CodeFinding, ...] = ()
    """What the analysis of the code has found; it is advice."""
    environment_recreated: bool = False
    """Whether variables and files of earlier calls were lost since the last call of this `session_id`."""
    artifacts: tuple[Artifact, ...] = ()
    """The files of the workspace that were changed since the call before, those that are gone last. Not among them:
    what has a name that begins with a dot or is in such a folder, in a `__pycache__` or a `node_modules`."""
    artifacts_left_out: int = 0
    """How many more were found than are named."""
    artifacts_complete: bool = True
    """Whether the whole workspace was looked through; False: it is too large, or its container has ended."""

    def with_output(self, output: str) -> Self:
        """Return the result with another text in the place of all that the code printed, returned or raised."""
        hidden = None if self.error is None else CodeError(name="Error", value="")
        left_out = self.artifacts_left_out + len(self.artifacts)  # the code has chosen their names
        update = {
            "output": output,
            "result": None,
            "error": hidden,
            "artifacts": (),
            "artifacts_left_out": left_out,
        }
        return self.model_copy(update=update)

    def as_text(self) -> str:
        """Return the result in words, for a model or a log; never empty."""
        parts = [self.output.rstrip()] if self.output.strip() else []
        if self.result is not None:
            parts.append(self.result)
        if self.images:
            parts.append(f"[{self.images} image{'s' if self.images > 1 else ''}]")
        if self.error is not None:
            parts.append(f"{self.error.name}: {self.error.value}")
        return "\n".join([*(parts or ["(no output)"]), self.conclusion()])

    def conclusion(self) -> str:
        """Return in words how it ended and which files it changed, without what it printed, returned or raised."""
        return "\n".join([*self._files_as_text(), f"[{self.status}]"])

    def _files_as_text(self) -> list[str]:
        names = [artifact.as_text() for artifact in self.artifacts[:_FILES_NAMED]]
        more = len(self.artifacts) + self.artifacts_left_out - len(names)
        names += [f"{more} more files"] if more else []
        return [f"[files: {'; '.join(names)}]"] if names else []
