"""A container's program whose output a test writes, and the host's side of its kernel."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from aeolus_sandbox import (
    CodeChunk,
    ExitStatus,
    Limits,
    SandboxProfile,
    SessionBroken,
    SessionClosed,
    Stop,
    UnixSignal,
)
from aeolus_sandbox.guest import frames
from aeolus_sandbox.limits import MIB
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel

PATIENCE_S: Final = 20.0
GRACE_S: Final = 0.02
PROFILE: Final = SandboxProfile(image="python", argv=("aeolus-kernel-host", "python"))
READY: Final = frames.Ready(protocol=frames.PROTOCOL_VERSION, language="python", kernel="ipython 9")


class ScriptedProcess:
    """The program of a container, as far as the host can tell; `on_request` answers what the host writes."""

    tty = False

    def __init__(self) -> None:
        self.requests: list[frames.Request] = []
        self.stops: list[Stop] = []
        self.reads = 0
        self.writes = 0
        self.on_request: Callable[[frames.Request], None] = lambda request: None
        self.takes_input = asyncio.Event()
        self.takes_input.set()
        self.stdin_closed = False
        self.lost = False
        self.exit = ExitStatus(reason="exited", code=0)
        self._pieces: deque[Piece] = deque()
        self._ended = False
        self._changed = asyncio.Event()

    def say(self, *said: frames.Frame) -> None:
        self.write_out(b"".join(map(frames.encode_frame, said)))

    def write_out(self, data: bytes, stream: Any = "stdout") -> None:
        self._pieces.append(Piece(stream, data))
        self._changed.set()

    def end(self, status: ExitStatus | None = None) -> None:
        self.exit = status or self.exit
        self._ended = True
        self._changed.set()

    async def read(self) -> Sequence[Piece]:
        self.reads += 1
        while not self._pieces:
            if self.lost:
                raise SessionBroken("the engine went away")
            if self._ended:
                return ()
            self._changed.clear()
            await self._changed.wait()
        return [self._pieces.popleft()]

    async def write(self, data: bytes) -> None:
        if self.stdin_closed:
            raise SessionClosed("closed")
        self.writes += 1
        made = [frames.decode_request(line) for line in data.splitlines()]
        self.requests += made
        await self.takes_input.wait()
        for request in made:
            self.on_request(request)

    def write_eof(self) -> None:
        self.stdin_closed = True

    async def signal(self, signal: UnixSignal) -> None:
        raise NotImplementedError

    async def resize(self, *, cols: int, rows: int) -> None:
        raise NotImplementedError

    async def stop(self, stop: Stop) -> None:
        self.stops.append(stop)
        self.end(ExitStatus(reason=stop.reason, code=137, limit_hit=stop.limit_hit))

    async def wait(self) -> ExitStatus:
        return self.exit


async def ready_kernel(process: ScriptedProcess) -> Kernel:
    """Return a kernel that has booted."""
    kernel = Kernel(process, PROFILE, Limits(memory_bytes=256 * MIB), answer_timeout_s=0.2)
    process.say(READY)
    await kernel.wait_ready()
    return kernel


async def new_cell(kernel: Kernel, *, keeps_kernel: bool = True) -> Cell:
    op = await kernel.execute("code")
    assert op is not None
    return Cell(kernel, op, keeps_kernel=keeps_kernel, grace_s=GRACE_S)


async def read_all(cell: Cell) -> list[CodeChunk]:
    async with asyncio.timeout(PATIENCE_S):
        return [chunk async for chunk in cell.chunks()]


def text(op: int, content: str) -> frames.Stream:
    return frames.Stream(op=op, name="stdout", text=content)
