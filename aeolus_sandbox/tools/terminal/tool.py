"""`TerminalTool`: a command in a container, streamed as it runs."""

import asyncio
import itertools
import operator
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import ClassVar, Final

from aeolus_sandbox.capabilities import CapabilityKind
from aeolus_sandbox.hardening import WORKSPACE
from aeolus_sandbox.pieces import Piece, StreamName
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.clipping import ClippedText
from aeolus_sandbox.streaming.policies import Policy, Window
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.streaming.sandbox import Process
from aeolus_sandbox.streaming.stdin import Bytes, EndOfInput, Resize, Signal, StdinEvent, Text
from aeolus_sandbox.streaming.text import REPLACEMENT, Utf8Boundary
from aeolus_sandbox.streaming.tool import (
    CancelToken,
    IsolationMode,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    in_container,
)
from aeolus_sandbox.tools.files import check_files
from aeolus_sandbox.tools.terminal.command_check import CommandPolicy, Finding, enforce
from aeolus_sandbox.tools.terminal.models import (
    TerminalChunk,
    TerminalCodec,
    TerminalInput,
    TerminalResult,
    terminal_chunk,
)

OUTPUT_CHARACTERS: Final = 8000
"""How much of the output a result holds."""
_MAX_CHUNK_BYTES: Final = 64 * 1024
"""Output that comes in larger pieces (a terminal's does) is cut, so that chunks are bounded and fit into the spool."""
_END_OF_INPUT: Final = b"\x04"


class TerminalTool(StreamingTool[TerminalInput, TerminalChunk, TerminalResult]):
    """Run a shell command in a container, on a terminal or on pipes."""

    name: ClassVar[str] = "terminal"
    description: ClassVar[str] = (
        "Run a shell command in an isolated container without network, and stream what it prints. "
        "The working directory is /workspace, which is empty at first and gone afterwards."
    )
    Input = TerminalInput
    OutputChunk = TerminalChunk
    Final = TerminalResult
    policy: Policy = Window(max_chunks=200)
    isolation: IsolationMode = IsolationMode.CONTAINER
    required_capability = CapabilityKind.RUN_COMMANDS

    def __init__(
        self,
        *,
        image: str = "shell",
        command_policy: CommandPolicy = CommandPolicy.DENY,
        isolation: IsolationMode = IsolationMode.CONTAINER,
    ) -> None:
        """Configure the tool.

        Args:
            image: A name of our images, or any image on the engine.
            command_policy: What happens to commands that look dangerous. It is advice: the container is the boundary.
            isolation: Which kernel its containers run on.

        Raises:
            ConfigurationError: The isolation knows no containers.
        """
        self.isolation = in_container(isolation, self.name)
        self.image = image
        self.command_policy = command_policy

    async def start(
        self, tool_input: TerminalInput, context: ToolContext
    ) -> StreamingToolHandle[TerminalChunk, TerminalResult]:
        """Start the command; see `StreamingTool.start`.

        Raises:
            CommandRefused: The command looks dangerous and the policy is to deny.
        """
        # In a thread: a long or hostile command can take the parser a moment.
        findings = await asyncio.to_thread(
            enforce, tool_input.command, self.command_policy, cwd=tool_input.cwd or WORKSPACE
        )
        given, max_bytes = tool_input.files, context.limits.disk_bytes
        files = await asyncio.to_thread(check_files, given, max_bytes=max_bytes) if given else []
        sandbox = await context.park(self.profile(tool_input))
        process = await sandbox.exec(
            tool_input.argv,
            env=tool_input.env,
            cwd=tool_input.cwd,
            files=files,
            cols=tool_input.cols,
            rows=tool_input.rows,
        )
        run = _Run(
            process,
            findings,
            output=ClippedText(OUTPUT_CHARACTERS, new_filter=context.text_filter),
            max_chunk_bytes=min(_MAX_CHUNK_BYTES, context.limits.output_bytes // 2),
        )
        return StreamingToolHandle(
            chunks=run.chunks(),
            finalize=run.result(),
            stdin=_Stdin(process),
            cancel=CancelToken(process.stop),
        )

    def profile(self, tool_input: TerminalInput) -> SandboxProfile:
        """Return the container of a command; see `StreamingTool.profile`."""
        return SandboxProfile(image=self.image, tty=tool_input.tty)

    def codec(self) -> TerminalCodec:
        """Return the codec of raw output."""
        return TerminalCodec()


class _Run:
    """One command under way: its output, and what the result says of it."""

    def __init__(
        self, process: Process, findings: list[Finding], *, output: ClippedText, max_chunk_bytes: int
    ) -> None:
        self._process = process
        self._findings = findings
        self._max_chunk_bytes = max_chunk_bytes
        self._started = time.monotonic()
        self._boundaries: dict[StreamName, Utf8Boundary] = {
            "stdout": Utf8Boundary(),
            "stderr": Utf8Boundary(),
        }
        self._bytes: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        self._invalid = 0
        self._output = output

    async def chunks(self) -> AsyncIterator[TerminalChunk]:
        """Yield the output as it comes, cut between characters."""
        while pieces := await self._process.read():
            for stream, data in _joined(pieces, self._max_chunk_bytes):
                self._bytes[stream] += len(data)
                for start in range(0, len(data), self._max_chunk_bytes):
                    if whole := self._boundaries[stream].feed(data[start : start + self._max_chunk_bytes]):
                        yield self._chunk(stream, whole)
        for stream, boundary in self._boundaries.items():
            if rest := boundary.flush():
                yield self._chunk(stream, rest)

    async def result(self) -> TerminalResult:
        """Wait for the end and sum up."""
        status = await self._process.wait()
        return TerminalResult(
            exit_code=status.code,
            status=status,
            duration_ms=(time.monotonic() - self._started) * 1000,
            output=self._output.rendered(render_text),
            stdout_bytes=self._bytes["stdout"],
            stderr_bytes=self._bytes["stderr"],
            invalid_bytes=self._invalid,
            findings=tuple(self._findings),
        )

    def _chunk(self, stream: StreamName, data: bytes) -> TerminalChunk:
        text = data.decode("utf-8", "replace")
        if not data.isascii():
            self._invalid += text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
        self._output.feed(text, flow=stream)
        return terminal_chunk(stream, data)


def _joined(pieces: Iterable[Piece], max_bytes: int) -> Iterator[Piece]:
    """Join small neighbours of one stream: a thousand tiny writes that arrive together cost little more than one."""
    for stream, group in itertools.groupby(pieces, key=operator.attrgetter("stream")):
        held: list[bytes] = []
        held_bytes = 0
        for _, data in group:
            if held_bytes + len(data) > max_bytes and held:
                yield Piece(stream, b"".join(held))
                held, held_bytes = [], 0
            held.append(data)
            held_bytes += len(data)
        yield Piece(stream, b"".join(held))


class _Stdin:
    """Sends events to a command; see `streaming.stdin.StdinSender`."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._line_is_open = False

    async def send(self, event: StdinEvent) -> None:
        """Send an event; see `StdinSender.send`."""
        match event:
            case Text(text):
                await self._write(text.encode("utf-8", "surrogateescape"))
            case Bytes(data):
                await self._write(data)
            case Signal(signal):
                await self._process.signal(signal)
            case Resize(cols, rows):
                await self._process.resize(cols=cols, rows=rows)
            case EndOfInput():
                await self._end_input()

    async def _write(self, data: bytes) -> None:
        if data:
            await self._process.write(data)
            self._line_is_open = data[-1:] not in {b"\n", b"\r", _END_OF_INPUT}

    async def _end_input(self) -> None:
        if not self._process.tty:
            self._process.write_eof()
            return
        # A terminal's end-of-input character only passes on what is pending; on an empty line it ends (termios(3)).
        await self._process.write(_END_OF_INPUT * (2 if self._line_is_open else 1))
        self._line_is_open = False
