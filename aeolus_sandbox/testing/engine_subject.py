"""What the engine suite works with: an engine under test, and short ways to run something on it."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aeolus_sandbox.engine.base import (
    OWNER_LABEL,
    SESSION_LABEL,
    ContainerExit,
    ContainerSpec,
    Engine,
    EngineContainer,
)
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import MIB, Limits
from aeolus_sandbox.profiles import SandboxProfile

TIMEOUT_S: Final = 30.0
"""Nothing in the suite waits longer for one thing."""
_LIMITS: Final = Limits.model_validate(
    {"memory_bytes": 128 * MIB, "disk_bytes": 16 * MIB, "tmp_bytes": 8 * MIB}
)


class Subject:
    """An engine under test; every container has its own owner, so that nothing of somebody else's is touched."""

    def __init__(self, engine: Engine, *, image: str, rounds: int = 50) -> None:
        self.engine = engine
        self.image = image
        self.rounds = rounds
        self.owner = f"engine-suite-{uuid.uuid4().hex}"

    def spec(self, script: str, *, tty: bool = False, session: str = "suite") -> ContainerSpec:
        """Return the specification of a container that runs a shell script."""
        return self.program("sh", "-c", script, tty=tty, session=session)

    def program(self, *argv: str, tty: bool = False, session: str = "suite") -> ContainerSpec:
        """Return the specification of a container that runs a program."""
        spec = container_spec(
            SandboxProfile(image=self.image, tty=tty),
            image=self.image,
            argv=argv,
            limits=_LIMITS,
            labels={OWNER_LABEL: self.owner, SESSION_LABEL: session},
            seccomp="",
        )
        return spec.model_copy(update={"seccomp": None})

    @asynccontextmanager
    async def running(self, spec: ContainerSpec) -> AsyncIterator[EngineContainer]:
        """Launch a container, and remove it afterwards."""
        async with asyncio.timeout(TIMEOUT_S):
            container = await self.engine.launch(spec)
        try:
            yield container
        finally:
            async with asyncio.timeout(TIMEOUT_S):
                await container.aclose()

    async def output_of(
        self, spec: ContainerSpec, *, delay_s: float = 0
    ) -> tuple[dict[str, bytes], ContainerExit]:
        """Run a container to its end, and return what it wrote and how it ended."""
        async with self.running(spec) as container:
            await asyncio.sleep(delay_s)
            output = await read_all(container)
            return output, await exit_of(container)

    async def left(self) -> int:
        """Return how many containers are left."""
        return len(await self.engine.list_containers({OWNER_LABEL: self.owner}))

    async def wait_nothing_left(self) -> None:
        """Wait until no container is left, which must be soon."""
        async with asyncio.timeout(TIMEOUT_S):
            while await self.left():  # noqa: ASYNC110 - an engine has no event for it
                await asyncio.sleep(0.05)


Check = Callable[[Subject], Awaitable[None]]
"""One promise, checked."""


async def read_all(container: EngineContainer) -> dict[str, bytes]:
    """Return what a container writes until its end, by stream."""
    output: dict[str, list[bytes]] = {}
    async with asyncio.timeout(TIMEOUT_S):
        while pieces := await container.stream.read():
            for stream, data in pieces:
                output.setdefault(stream, []).append(data)
    return {stream: b"".join(parts) for stream, parts in output.items()}


async def read_until(container: EngineContainer, text: bytes) -> bytes:
    """Return what a container writes until `text` has come."""
    found = b""
    async with asyncio.timeout(TIMEOUT_S):
        while text not in found:
            pieces = await container.stream.read()
            assert pieces, f"the output ended before {text!r}: {found!r}"
            found += b"".join(piece.data for piece in pieces)
    return found


async def exit_of(container: EngineContainer) -> ContainerExit:
    """Return how a container ends, which must be soon."""
    async with asyncio.timeout(TIMEOUT_S):
        return await container.wait_exit()
