"""Reads what an engine says while it builds or pulls."""

import re
import textwrap
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_INSTRUCTION_WIDTH: Final = 160
_LINES_KEPT: Final = 20
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the engine paints a step's stderr
_STEP = re.compile(r"Step (\d+/\d+) : (.*)")
_CONTAINER = re.compile(r" ---> Running in ([0-9a-f]{12})")
_CHATTER: Final = (" --->", "Removing intermediate container ")
_IMAGE = re.compile(r" ---> ([0-9a-f]{12})")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://(?P<path>[^\s\"'<>(),;?#]*)[^\s\"'<>(),;]*", re.IGNORECASE)
_HOST = re.compile(r"host='[^']*'")


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """One thing that a build said."""

    image: str
    step: str
    """Such as `3/9`; `pull` or `bootstrap` before the first step."""
    text: str


@dataclass(slots=True)
class BuildLog:
    """What is known of a build from the stream of its events.

    A step's own output is in the same text as what the engine says of it, so nothing here but `error` and `image_id`
    (which have fields of their own) decides anything alone.
    """

    image: str
    progress: Callable[[BuildProgress], None] | None = None
    step: str = ""
    instruction: str = ""
    error: str = ""
    image_id: str = ""
    containers: list[str] = field(default_factory=list)
    _images: set[str] = field(default_factory=set)
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_KEPT))

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take one event of the stream."""
        for line in _COLOUR.sub("", str(event.get("stream", ""))).splitlines():
            self._line(line)
        if "errorDetail" in event or "error" in event:
            self.error = _error_text(event)
        self.image_id = (event.get("aux") or {}).get("ID", self.image_id)
        if status := event.get("status"):
            self.say(self.step or "pull", str(status))

    @property
    def last_lines(self) -> tuple[str, ...]:
        """What the present step has said last."""
        return tuple(self._tail)

    def say(self, step: str, text: str) -> None:
        """Pass a line on to whoever watches."""
        if self.progress and text.strip():
            self.progress(BuildProgress(self.image, step, text.strip()))

    def made(self, image_id: str) -> bool:
        """Tell whether the build named this image as one of its own."""
        return image_id.removeprefix("sha256:")[:12] in self._images

    def failure(self, why: str) -> str:
        """Say what failed, at which step, and what the step said last."""
        where = f" at step {self.step} ({self.instruction})" if self.step else ""
        said = "".join(f"\n  {line}" for line in self._tail)
        return f"the build of image {self.image!r} failed{where}: {why}" + (
            f"; its last lines:{said}" if said else ""
        )

    def _line(self, line: str) -> None:
        if match := _STEP.fullmatch(line):
            self.step, self.instruction = (
                match[1],
                textwrap.shorten(match[2], _INSTRUCTION_WIDTH, placeholder=" ..."),
            )
            self._tail.clear()
        elif match := _CONTAINER.fullmatch(line):
            self.containers.append(match[1])
            return
        elif match := _IMAGE.fullmatch(line):
            self._images.add(match[1])
            return
        elif line.startswith(_CHATTER):
            return
        elif line.strip():
            self._tail.append(line.rstrip())
        self.say(self.step, line)


def without_addresses(text: str) -> str:
    """Return what an installer said with the last part alone of each address in it.

    The address of an index can hold a name and a password, and is nothing that a sandbox's user must know.
    """
    return _HOST.sub("host=...", _ADDRESS.sub(_last_part, text))


def _last_part(address: re.Match[str]) -> str:
    _host, _, path = address["path"].rstrip(":.").partition("/")
    return path.rpartition("/")[2] or "..."


def _error_text(event: Mapping[str, Any]) -> str:
    detail = event.get("errorDetail") or {}
    if code := detail.get("code"):  # its message only says the whole command again
        return f"exit code {code}"
    return str(detail.get("message") or event.get("error") or "unknown error").strip()
