"""The guard: a small process that outlives its owner just long enough to remove the owner's containers.

A host process that is killed cannot clean up, and a container on a terminal does not notice that nobody is attached
any more. So each manager starts one guard, which sleeps until its owner ends (its stdin closes, or the process is
gone) and then sweeps by the owner's label. Until then it has imported nothing but the standard library.

Run as `python -m aeolus_sandbox.sandboxes.guard OWNER ENGINE_ADDRESS`.
"""

import asyncio
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

SWEEP_TIMEOUT_S: Final = 600.0
"""How long a guard tries to reach an engine that is away; whatever is left then ends at its own deadline."""
_SWEEPS: Final = 3
"""More than one: a launch that was under way when the owner ended appears a little later."""
_PAUSE_BETWEEN_SWEEPS_S: Final = 2.0
_END_TIMEOUT_S: Final = 5.0
_left_to_sweep: Final[list[subprocess.Popen[bytes]]] = []


class Guard:
    """The owner's side of its guard process."""

    def __init__(self, owner: str, engine_address: str) -> None:
        self._command = [sys.executable, "-m", "aeolus_sandbox.sandboxes.guard", owner, engine_address]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start the process; it does not share our terminal's signals."""
        self._process = await asyncio.to_thread(self._spawn)

    async def aclose(self, *, clean: bool) -> None:
        """End the guard: at once when nothing is left to sweep, else by letting it sweep on its own."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(self._end, process, clean)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - our own program
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        )

    @staticmethod
    def _end(process: subprocess.Popen[bytes], clean: bool) -> None:
        assert process.stdin is not None
        if clean:
            process.kill()
        process.stdin.close()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            _left_to_sweep.append(process)  # it ends by itself; until then somebody must refer to it


def _wait_for_end_of_owner() -> None:
    """Sleep until stdin closes or the owner's process ends.

    A fork of the owner may hold our stdin open; the process descriptor (pidfd_open(2)) then tells.
    """
    watched = [sys.stdin.fileno()]
    if hasattr(os, "pidfd_open"):
        try:
            watched.append(os.pidfd_open(os.getppid()))
        except OSError:
            return  # it has ended already
    select.select(watched, [], [])


async def _sweep(owner: str, address: str) -> None:
    from aeolus_sandbox.engine.docker import DockerEngine  # only now: a sleeping guard should weigh nothing
    from aeolus_sandbox.errors import EngineError
    from aeolus_sandbox.sandboxes.reaper import Reaper

    async with DockerEngine(address) as engine, asyncio.timeout(SWEEP_TIMEOUT_S):
        left = _SWEEPS
        while left > 0:
            with suppress(EngineError):  # the engine may have gone together with the owner, and come back
                reaped = await Reaper(engine).sweep_owner(owner)
                left -= not reaped.failed
            await asyncio.sleep(_PAUSE_BETWEEN_SWEEPS_S)


def main(argv: list[str]) -> None:
    """Wait for the owner's end, then sweep."""
    owner, address = argv
    _wait_for_end_of_owner()
    asyncio.run(_sweep(owner, address))


if __name__ == "__main__":
    main(sys.argv[1:])
