"""A log tailer's guest whose every word a test writes."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aeolus_sandbox import ExitStatus, SandboxProfile, SessionClosed, Stop
from aeolus_sandbox.capabilities import NO_LOGS, ReadLogs
from aeolus_sandbox.guest.frames import encode_frame
from aeolus_sandbox.guest.logs import frames
from aeolus_sandbox.guest.logs.batches import OutgoingLines
from aeolus_sandbox.limits import Limits
from tests.unit.scripted_guest import ScriptedProcess

if TYPE_CHECKING:
    from collections.abc import Callable

OP: Final = 1


class ScriptedTailer(ScriptedProcess):
    """Says that it has opened what it was asked to, and `done` when it is told to stop; the rest is the test's."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[frames.LogRequest] = []
        self.handles: list[Any] = []
        self.obeys = True
        self.opens: Callable[[frames.Tail], frames.TailOpened] = _opened

    async def write(self, data: bytes) -> None:
        if self.stdin_closed:
            raise SessionClosed("closed")
        request = frames.decode_log_request(data)
        self.asked.append(request)
        await self.takes_input.wait()
        if isinstance(request, frames.Tail):
            self.say(await asyncio.to_thread(self.opens, request))
        elif isinstance(request, frames.StopTail) and self.obeys:
            self.say(done())

    def say_lines(self, file: str, *texts: str, position: frames.FilePosition | None = None) -> int:
        """Send a batch of lines of ten bytes each; return how many bytes it is."""
        at = position or frames.FilePosition(path=file, device=1, inode=1, offset=10 * len(texts))
        lines = OutgoingLines()
        for n, text in enumerate(texts):
            lines.add(text.encode(), 10 * n, 10 * n + 10)
        [(body, count, _)] = lines.batches()
        data = encode_frame(frames.Lines(op=OP, path=file, count=count, size=len(body), position=at)) + body
        self.write_out(data)
        return len(data)

    @property
    def tail(self) -> frames.Tail:
        """What it was asked for."""
        assert isinstance(self.asked[0], frames.Tail)
        return self.asked[0]


def _opened(request: frames.Tail) -> frames.TailOpened:
    seen = [(path, Path(path).stat()) for path in request.mounts]
    identities = [frames.MountIdentity(path, status.st_dev, status.st_ino) for path, status in seen]
    return frames.TailOpened(op=request.op, mounts=identities)


def done(**values: Any) -> frames.TailDone:
    """Return the guest's last word."""
    told: dict[str, Any] = {
        "op": OP,
        "lines_read": 7,
        "lines_matched": 5,
        "lines_dropped": 2,
        "lines_unparsed": 1,
        "bytes_read": 70,
        "files": ["/f"],
        "rotations": 3,
        "notices_left_out": 0,
        "positions": [frames.FilePosition(path="/f", device=1, inode=1, offset=70)],
    }
    return frames.TailDone(**told | values)


class ScriptedContext:
    """What a tool gets, with one guest in it."""

    session_id = "s"

    def __init__(
        self, process: ScriptedTailer, *, log_access: ReadLogs = NO_LOGS, progress: str | None = None
    ) -> None:
        self.limits = Limits()
        self.log_access = log_access
        self.progress = progress
        self.profiles: list[SandboxProfile] = []
        self._process = process

    async def run(self, profile: SandboxProfile) -> ScriptedTailer:
        self.profiles.append(profile)
        return self._process


KILLED: Final = ExitStatus(reason="killed", code=137)
CANCEL: Final = Stop(reason="cancelled")
