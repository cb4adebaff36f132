"""The processes in which peers do their part: found, started, asked with a time limit, and killed with the benchmark."""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.rounds import Unavailable

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENTS: Final = ROOT / ".cache" / "peers"
_START_LIMIT_S: Final = 60.0
_ANSWER_LIMIT_S: Final = 80.0
_END_LIMIT_S: Final = 30.0
_HINT: Final = "scripts/setup peers"


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """A peer, and the program that does its part."""

    name: str
    module: str
    environment: str | None = None
    """The name of its environment; None: it needs none but a `docker` program."""

    def command(self, environments: Path = ENVIRONMENTS) -> list[str] | Unavailable:
        """Return how its worker is started, or why it cannot be."""
        if shutil.which("docker") is None:
            return Unavailable("there is no `docker` program")
        python = (
            sys.executable if self.environment is None else environments / self.environment / "bin" / "python"
        )
        if not Path(python).exists():
            return Unavailable(f"not installed ({_HINT})")
        return [str(python), "-m", self.module]


class PeerFailed(Exception):
    """A peer could not do what it was asked, or its worker has ended."""


class PeerProcess:
    """A worker; one that did not answer in time is killed, and the next question starts another."""

    def __init__(self, command: Sequence[str], *, answer_limit_s: float = _ANSWER_LIMIT_S) -> None:
        self._command = command
        self._answer_limit_s = answer_limit_s
        self._process: asyncio.subprocess.Process | None = None
        self._complaints: IO[bytes] | None = None
        self.abilities: frozenset[str] = frozenset()
        self.version = ""

    async def start(self) -> None:
        """Start it and hear what it can do.

        Raises:
            PeerFailed: It cannot do anything here, with its reason.
        """
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._complaints,
            cwd=ROOT,
            start_new_session=True,  # what it starts ends with it
        )
        said = await self._exchange(None, _START_LIMIT_S)
        self.abilities, self.version = frozenset(said["can"]), said["version"]

    async def ask(self, wanted: str, *, limit_s: float | None = None, **more: object) -> dict[str, Any]:
        """Have something done, and return the answer.

        Raises:
            PeerFailed: It failed, or did not answer in time.
        """
        if self._process is None:
            await self.start()
        return await self._exchange({"do": wanted, **more}, limit_s or self._answer_limit_s)

    async def aclose(self) -> None:
        """Have it end what it has open; kill it where it takes too long."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_LIMIT_S):
                    await self._process.wait()
        await self._kill()

    async def _exchange(self, request: Mapping[str, object] | None, limit_s: float) -> dict[str, Any]:
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._line(request)
        except TimeoutError as error:
            await self._kill()
            msg = f"no answer in {limit_s:.0f} s"
            raise PeerFailed(msg) from error
        except (
            BaseException
        ):  # also when the benchmark's own limit ends it: its answer would be the next one's
            await self._kill()
            raise
        if "error" in answer:
            raise PeerFailed(answer["error"])
        return answer

    async def _line(self, request: Mapping[str, object] | None) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        with suppress(ConnectionError):  # it has ended: there is no answer
            if request is not None:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        if not line:
            raise PeerFailed(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        assert self._complaints is not None
        self._complaints.seek(0)
        lines = self._complaints.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][-300:] if lines else "its worker ended without a word"

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if self._complaints is not None:
            self._complaints.close()


@asynccontextmanager
async def workers(
    programs: Sequence[PeerProgram], arguments: Sequence[str], *, environments: Path = ENVIRONMENTS
) -> AsyncIterator[tuple[dict[str, PeerProcess], dict[str, Unavailable]]]:
    """Start the workers of those that are there, and give them, and why the others are not; they end afterwards."""
    there: dict[str, PeerProcess] = {}
    absent: dict[str, Unavailable] = {}
    try:
        for program in programs:
            command = program.command(environments)
            if isinstance(command, Unavailable):
                absent[program.name] = command
                continue
            worker = PeerProcess([*command, *arguments])
            try:
                await worker.start()
            except PeerFailed as error:
                absent[program.name] = Unavailable(str(error))
                await worker.aclose()
            else:
                there[program.name] = worker
        yield there, absent
    finally:
        async with asyncio.TaskGroup() as group:
            for worker in there.values():
                group.create_task(worker.aclose())
