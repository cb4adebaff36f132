"""A stock ipykernel in a container like ours: what a Python session is measured against."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiodocker
from aiodocker.stream import Stream

from benchmarks.bare import config_of, started


class StockKernel:
    """A kernel beside jupyter_client in one container; see jupyter_inside.py."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._held = b""

    async def wait_ready(self) -> None:
        """Wait until the kernel takes cells.

        Raises:
            RuntimeError: It did not start.
        """
        said = await self._next_line()
        if said != '"ready"':
            msg = f"the stock kernel did not start: {said}"
            raise RuntimeError(msg)

    async def run(self, code: str) -> float:
        """Run a cell and return how long it took by the clock inside, in seconds.

        Raises:
            RuntimeError: The cell failed, or the kernel has ended.
        """
        await self._stream.write_in(json.dumps(code).encode() + b"\n")
        took = json.loads(await self._next_line())
        if took is None:
            msg = f"the cell failed: {code}"
            raise RuntimeError(msg)
        return float(took)

    async def _next_line(self) -> str:
        while b"\n" not in self._held:
            message = await self._stream.read_out()
            if message is None:
                msg = f"the program in the container has ended: {self._held!r}"
                raise RuntimeError(msg)
            self._held += message.data
        line, _, self._held = self._held.partition(b"\n")
        return line.decode()


def stock_config() -> dict[str, Any]:
    """Return the create call's body for such a container."""
    program = Path(__file__).with_name("jupyter_inside.py").read_text("utf-8")
    return config_of("python", ("python3", "-c", program), tty=False)


@asynccontextmanager
async def stock_kernel(docker: aiodocker.Docker) -> AsyncIterator[StockKernel]:
    """Give a kernel that is ready; its container is removed afterwards."""
    async with started(docker, stock_config()) as stream:
        kernel = StockKernel(stream)
        await kernel.wait_ready()
        yield kernel
