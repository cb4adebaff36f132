"""What the kernel says, as reply lines: checked, cut to size, and valid UTF-8 whatever the code printed."""

from typing import Any, Final

import msgspec

from aeolus_sandbox.guest.frames import (
    MAX_FRAME_BYTES,
    MAX_TEXT_CHARACTERS,
    Display,
    Error,
    Frame,
    FrameError,
    Result,
    Stream,
    encode_frame,
)

MAX_ENTRY_BYTES: Final = 20 * 1024 * 1024
"""The largest MIME entry that is handed on, as JSON."""
MAX_METADATA_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 64
"""How deep a JSON value may be nested, so that no decoder on the way runs out of stack."""
MAX_TRACEBACK_LINES: Final = 100
MAX_ERROR_CHARACTERS: Final = 16 * 1024
"""The longest error value and the longest line of a traceback."""
MAX_MIME_CHARACTERS: Final = 255
"""The longest name of a type (RFC 6838, section 4.2)."""
_NOTES_SHOWN: Final = 10
_OMITTED_SHOWN: Final = 32


class StreamContent(msgspec.Struct):
    """Content of a `stream` message."""

    name: str
    text: str


class BundleContent(msgspec.Struct):
    """Content of `display_data`, `update_display_data` and `execute_result` messages."""

    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    transient: dict[str, Any] = {}
    execution_count: int | None = None


class ErrorContent(msgspec.Struct):
    """Content of an `error` message, and part of a reply."""

    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class ReplyContent(ErrorContent):
    """Content of an `execute_reply`."""

    status: str = "error"
    payload: list[dict[str, Any]] = []

    @property
    def asks_exit(self) -> bool:
        """Whether the code asked the kernel to end, as `exit()` does."""
        return any(item.get("source") == "ask_exit" and not item.get("keepkernel") for item in self.payload)


class OutputLines:
    """Collects the output of one turn of the loop as lines, and joins small texts on the way."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._texts: list[str] = []
        self._source = (0, "stdout")

    def add(self, kind: str, content: object, op: int) -> None:
        """Add a message of the kernel; kinds that are not output are left out.

        Raises:
            msgspec.ValidationError: The content is not what the kind promises.
        """
        if kind == "stream":
            stream = msgspec.convert(content, StreamContent)
            self._add_text(op, "stderr" if stream.name == "stderr" else "stdout", stream.text)
        elif kind in ("display_data", "update_display_data"):
            bundle = msgspec.convert(content, BundleContent)
            display_id = bundle.transient.get("display_id")
            display = Display(
                op=op,
                data=bundle.data,
                metadata=bundle.metadata,
                display_id=None if display_id is None else str(display_id)[:MAX_ERROR_CHARACTERS],
                update=kind == "update_display_data",
            )
            self._add_line(bundle_line(display))
        elif kind == "execute_result":
            bundle = msgspec.convert(content, BundleContent)
            count = bundle.execution_count
            result = Result(op=op, data=bundle.data, metadata=bundle.metadata, execution_count=count)
            self._add_line(bundle_line(result))
        elif kind == "error":
            self._add_line(error_line(msgspec.convert(content, ErrorContent), op))

    def add_note(self, text: str, op: int) -> None:
        """Add a note of ours to the error output."""
        self._add_text(op, "stderr", f"[{text}]\n")

    def take(self) -> bytes:
        """Return what was collected, and start anew."""
        self._end_text()
        lines, self._lines = self._lines, []
        return b"".join(lines)

    def _add_text(self, op: int, name: str, text: str) -> None:
        if self._source != (op, name):
            self._end_text()
            self._source = (op, name)
        self._texts.append(text)

    def _add_line(self, line: bytes) -> None:
        self._end_text()
        self._lines.append(line)

    def _end_text(self) -> None:
        text = "".join(self._texts)
        self._texts.clear()
        op, name = self._source
        for start in range(0, len(text), MAX_TEXT_CHARACTERS):
            piece = text[start : start + MAX_TEXT_CHARACTERS]
            self._lines.append(safe_line(Stream(op=op, name=name, text=piece)))


def safe_line(frame: Frame) -> bytes:
    """Return the frame as a line; lone surrogates in it become U+FFFD.

    Raises:
        FrameError: The frame is too long.
    """
    try:
        return encode_frame(frame)
    except UnicodeEncodeError:
        fields = {name: _valid_text(getattr(frame, name)) for name in frame.__struct_fields__}
        return encode_frame(type(frame)(**fields))


def error_line(error: ErrorContent, op: int) -> bytes:
    """Return an error as a line, with overlong parts cut."""
    lines = error.traceback
    longest = max(map(len, (error.ename, error.evalue, *lines)))
    truncated = len(lines) > MAX_TRACEBACK_LINES or longest > MAX_ERROR_CHARACTERS
    if len(lines) > MAX_TRACEBACK_LINES:
        half = MAX_TRACEBACK_LINES // 2
        lines = [*lines[:half], f"[{len(lines) - 2 * half} entries left out]", *lines[-half:]]
    name, value, *traceback = map(_cut, (error.ename, error.evalue, *lines))
    return safe_line(Error(op=op, name=name, value=value, traceback=traceback, truncated=truncated))


def bundle_line(frame: Display | Result) -> bytes:
    """Return a MIME bundle as a line; entries that are too large or too deep are named instead of shown."""
    frame = _without_deep_values(frame)
    try:
        line = safe_line(frame)
    except FrameError:
        line = b""
    if 0 < len(line) <= MAX_ENTRY_BYTES:  # then no entry is larger
        return line
    return safe_line(_without_large_values(frame))


def _without_deep_values(frame: Display | Result) -> Display | Result:
    metadata = {} if _is_deep(frame.metadata) else frame.metadata
    deep = [mime for mime, value in frame.data.items() if not isinstance(value, str) and _is_deep(value)]
    notes = [f"{mime[:100]} left out: nested deeper than {MAX_DEPTH} levels" for mime in deep]
    return _replaced(frame, omitted=dict.fromkeys(deep, 0), notes=notes, metadata=metadata)


def _without_large_values(frame: Display | Result) -> Display | Result:
    sizes = {mime: _json_bytes(mime) + _json_bytes(value) for mime, value in frame.data.items()}
    metadata = {} if _json_bytes(frame.metadata) > MAX_METADATA_BYTES else frame.metadata
    room = MAX_FRAME_BYTES - 2 * MAX_METADATA_BYTES
    left_out: dict[str, int] = {}
    for mime in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if sizes[mime] <= MAX_ENTRY_BYTES and sum(sizes.values()) <= room:
            break
        left_out[mime] = sizes[mime]
        room += sizes[mime]
    notes = [f"{mime[:100]} left out: {size / 2**20:.1f} MiB is too large" for mime, size in left_out.items()]
    return _replaced(frame, omitted=left_out, notes=notes, metadata=metadata)


def _replaced(
    frame: Display | Result, *, omitted: dict[str, int], notes: list[str], metadata: dict[str, Any]
) -> Display | Result:
    if not omitted and metadata is frame.metadata:
        return frame
    data = {mime: value for mime, value in frame.data.items() if mime not in omitted}
    if notes:
        more = [f"and {len(notes) - _NOTES_SHOWN} more"] if len(notes) > _NOTES_SHOWN else []
        plain = [data["text/plain"]] if isinstance(data.get("text/plain"), str) else []
        data["text/plain"] = "\n".join([*plain, *(f"[{note}]" for note in [*notes[:_NOTES_SHOWN], *more])])
    named = {mime[:MAX_MIME_CHARACTERS]: size for mime, size in [*omitted.items()][:_OMITTED_SHOWN]}
    return msgspec.structs.replace(frame, data=data, metadata=metadata, omitted=frame.omitted | named)


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
        if not inner:
            return False
        level = inner
    return True


def _json_bytes(value: object) -> int:
    try:
        return len(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return len(msgspec.json.encode(_valid_text(value)))


def _cut(text: str) -> str:
    left_out = len(text) - MAX_ERROR_CHARACTERS
    return text if left_out <= 0 else f"{text[:MAX_ERROR_CHARACTERS]} [{left_out} characters left out]"


def _valid_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [*map(_valid_text, value)]
    if isinstance(value, dict):
        return {_valid_text(name): _valid_text(item) for name, item in value.items()}
    return value
