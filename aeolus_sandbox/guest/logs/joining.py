"""Lines that belong to the line before them: stack traces and what a program wrote as one text of several lines."""

import re
from collections.abc import Callable
from typing import Final

from aeolus_sandbox.guest.logs.frames import MAX_LINE_BYTES, Join

_LOOKED_AT_BYTES: Final = 512
"""How much of a line is looked at: what tells a continuation stands at its beginning."""

# What a container's engine puts before a line: the Kubernetes CRI's stamp, stream and tag, Docker's JSON. The trace is
# inside.
_CRI: Final = re.compile(rb"\d{4}-\d\d-\d\dT\S{8,30} std(?:out|err) ([FP])(?::\S{0,64})?(?: |$)")
_DOCKER: Final = b'{"log":"'

_NEVER: Final = b'0123456789{"<'
"""What no continuation begins with, unless it is indented: most stamps, objects and access lines."""

# Only ever after another line: Java's and Python's chains, .NET's seams, frames of Ruby that are not indented, and the
# closing brackets of a value printed over several lines.
_ALWAYS: Final = re.compile(
    rb"Caused by: |Suppressed: |\.\.\. \d{1,9} (?:more|common frames)|Traceback \(most recent call last\):"
    rb"|During handling of the above exception|The above exception was the direct cause"
    rb"|--- End of |---> |[\w./@-]{1,300}\.rb:\d{1,9}:in [`'][^']{1,100}'\s*$|[\])}]{1,8}[,;]?\s*$"
)
_JAVA_ERROR: Final = re.compile(
    rb"(?:[A-Za-z_]\w{0,63}\.){1,20}[A-Z][\w$]{0,99}(?:Exception|Error|Throwable|Failure)(?:: |:?\s*$)"
)
_ERROR: Final = re.compile(rb"(?:[A-Za-z_]\w{0,63}\.){0,20}[A-Za-z_]\w{0,99}(?::(?: |\s*$)|\s*$| \[)")
_GO_PANIC: Final = re.compile(rb"(?:panic|fatal error|runtime: [\w ]{1,60}|SIG[A-Z]{2,6}): ?")
_GO_TRACE: Final = re.compile(
    rb"goroutine \d{1,19} |\[signal |[\w./*()\[\]{}<>@%-]{1,300}\(.{0,400}\)?\s*$|created by |exit status \d|main\.main"
)
# Under a line of zap's console, which has columns, the frames begin with a function's name alone.
_GO_FUNCTION: Final = re.compile(rb"(?:[\w.~-]{1,100}/){0,20}\w{1,100}\.[\w.()*\[\]]{1,200}\s*$")
# Node prints the place with a caret under it, an empty line, the error with its frames, and in the end its version.
_CARET_LINE: Final = re.compile(rb"\s{1,200}\^{1,200}\s*$")
_NODE_END: Final = re.compile(rb"Node\.js v\d")

_PLAIN: Final = "plain"
_INDENTED: Final = "indented"
_CARET: Final = "caret"
_PYTHON: Final = "python"
_PYTHON_ENDED: Final = "python ended"
_GO: Final = "go"
_COLUMNS: Final = "columns"

Starts = Callable[[bytes], object]
"""Whether an event begins with a line (any true value): how a compiled start pattern is asked."""


class Joiner:
    """Says of each line of one file, in their order, whether it goes on with the event that the lines before it make.

    The caller asks `continues` once for every line and keeps the lines of an event; no line is ever held back here, so
    none can be lost, and each costs the same however long its event has become. An event ends when it has
    `Join.max_lines` lines or `max_bytes` bytes; what follows of it begins another.

    An empty line belongs to a trace when it stands in one; elsewhere it is a line of its own.
    """

    def __init__(self, join: Join, starts: Starts | None = None, *, max_bytes: int = MAX_LINE_BYTES) -> None:
        """Make one for a file.

        Args:
            join: How to join; of its pattern, only whether there is one is asked here.
            starts: The compiled `join.start`; None: whatever does not look like a continuation begins an event.
            max_bytes: How many bytes an event has at most, unless its first line alone has more.
        """
        self._max_lines = join.max_lines
        self._max_bytes = max_bytes
        self._starts = starts
        self.reset()

    def reset(self) -> None:
        """Let the next line begin an event, as where another file goes on under the same name."""
        self._lines = 0
        self._bytes = 0
        self._state = _PLAIN
        self._piece = False

    def continues(self, line: bytes) -> bool:
        """Return whether a line, given without its end, goes on with the event before it; if not, it begins one."""
        content = line[:_LOOKED_AT_BYTES]
        after_piece = self._piece
        self._piece = False
        if content[:4].isdigit() or content.startswith(_DOCKER):
            content = self._unwrapped(content, line)
        size = len(line) + 1
        belongs = not self._starts(line) if self._starts else self._belongs(content)
        joined = belongs and not after_piece and self._fits(size)
        if joined:
            self._lines += 1
            self._bytes += size
        else:
            self._begin(content, size)
        return joined

    def _fits(self, size: int) -> bool:
        return 0 < self._lines < self._max_lines and self._bytes + size <= self._max_bytes

    def _belongs(self, content: bytes) -> bool:
        state = self._following(content)
        if state is None:
            return False
        self._state = state
        return True

    def _following(self, content: bytes) -> str | None:
        """Return the state after a line that continues, or None when it begins an event."""
        state = self._state
        if not content:
            return None if state in (_PLAIN, _COLUMNS) else state
        if content[0] in b" \t":
            return (
                state
                if state in (_PYTHON, _GO, _COLUMNS)
                else _CARET
                if _CARET_LINE.match(content)
                else _INDENTED
            )
        if content[0] in _NEVER:
            return None
        if content.startswith(b"Traceback (most"):
            return _PYTHON
        if _ALWAYS.match(content):
            return _INDENTED if state is _PLAIN else state
        return self._after_trace(content, state)

    def _after_trace(self, content: bytes, state: str) -> str | None:
        if state is _PYTHON:
            return _PYTHON_ENDED if _ERROR.match(content) else None
        if state is _GO:
            return _GO if _GO_TRACE.match(content) else None
        if state is _COLUMNS:
            return _COLUMNS if _GO_FUNCTION.match(content) else None
        if state is _PLAIN:  # the error under the line that logs it; a second one is an event of its own
            return _INDENTED if _JAVA_ERROR.match(content) else None
        is_of_node = _NODE_END.match(content) or (state is _CARET and _ERROR.match(content))
        return _INDENTED if is_of_node else None

    def _begin(self, content: bytes, size: int) -> None:
        self._lines = 1
        self._bytes = size
        if content.startswith(b"Traceback (most"):
            self._state = _PYTHON
        elif _GO_PANIC.match(content) or content.startswith(b"goroutine "):
            self._state = _GO
        elif b"\t" in content and content[:1].isdigit():
            self._state = _COLUMNS
        else:
            self._state = _PLAIN

    def _unwrapped(self, content: bytes, line: bytes) -> bytes:
        """Return what a program wrote, of a line of a container's log; the line itself when it is none.

        After a piece of a message, the next line begins an event in any case: its parser has to see it.
        """
        if content.startswith(_DOCKER):
            self._piece = not re.search(rb'\\n","', line[-512:])
            return _beginning_of(content[len(_DOCKER) :])
        found = _CRI.match(content)
        if not found:
            return content
        self._piece = found[1] == b"P"
        return content[found.end() :]


def _beginning_of(text: bytes) -> bytes:
    # The beginning of a JSON string: a tab or the end of an empty line is all that matters of its escapes.
    if text.startswith(b"\\t"):
        return b"\t" + text[2:]
    if text.startswith((b'\\n"', b"\\r\\n")):
        return b""
    return text.split(b'\\n","', 1)[0]
