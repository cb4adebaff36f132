"""The host's side of the writers: the compose project that they run in, and what they are asked to do."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aeolus_sandbox.engine.docker import engine_address
from aeolus_sandbox.engine.image_client import ImageClient
from aeolus_sandbox.identifiers import new_identifier
from tests.integration.running import PATIENCE_S

COMPOSE_FILE: Final = Path(__file__).with_name("docker-compose.yml")
_COMPOSE_LIMIT_S: Final = 120
_ANSWER_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Writers:
    """The container with nginx and logrotate."""

    folder: Path
    """What it writes, and where it is talked to."""

    @property
    def logs(self) -> Path:
        """What is `/var/log` in the container."""
        return self.folder / "log"

    @property
    def socket(self) -> Path:
        """Where it is asked."""
        return self.folder / "control/writer.sock"

    async def begin(self, name: str | None = None, **how: Any) -> "Site":
        """Start an nginx whose logs are in a folder of its own; see `begin` in the container's program."""
        site = Site(self, name or new_identifier())
        await self.ask("begin", name=site.name, **how)
        return site

    async def ask(self, what: str, **arguments: Any) -> Any:
        """Let the container do something, and return what came of it."""
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(self.socket, limit=_ANSWER_BYTES)
            try:
                writer.write(json.dumps({"do": what, **arguments}).encode() + b"\n")
                answer = json.loads(await reader.readline())
            finally:
                writer.close()
                await writer.wait_closed()
        assert "error" not in answer, answer["error"]
        return answer["result"]


@dataclass(frozen=True, slots=True)
class Site:
    """One nginx and its logs."""

    writers: Writers
    name: str

    @property
    def folder(self) -> Path:
        """Its logs, as the host has them."""
        return self.writers.logs / self.name

    @property
    def access_log(self) -> Path:
        """Where its requests are."""
        return self.folder / "access.log"

    async def serve(self, count: int, kind: str = "") -> None:
        """Serve some requests to `/KIND/n/NUMBER`, all of which are in the log then."""
        await self.writers.ask("serve", name=self.name, count=count, kind=kind)

    async def rotate(self) -> None:
        """Rotate once."""
        await self.writers.ask("rotate", name=self.name)

    async def serve_and_rotate(self, **how: Any) -> None:
        """Rotate some times under load; one last request, to `/last/n/NUMBER`, follows."""
        await self.writers.ask("serve_and_rotate", name=self.name, **how)
        await self.serve(1, "/last")

    async def logged(self) -> list[list[int]]:
        """Return the numbers in each of the access logs that there are, packed ones too, the oldest first."""
        logged: list[list[int]] = await self.writers.ask("logged", name=self.name)
        return logged


def compose_command() -> str:
    """Return how compose is called here: as a plugin of the engine's client, or as a program of its own."""
    plugin = subprocess.run(
        "docker compose version", shell=True, capture_output=True, timeout=_COMPOSE_LIMIT_S, check=False
    )
    command = "docker-compose" if plugin.returncode else "docker compose"
    return f"timeout {_COMPOSE_LIMIT_S} {command}"


@contextmanager
def nothing_left(project: str) -> Iterator[None]:
    """Remove what compose has left of a project, and fail if it has left anything."""
    try:
        yield
    finally:
        client = ImageClient(engine_address())
        try:
            left = client.remove_containers(f"com.docker.compose.project={project}")
        finally:
            client.close()
    assert left == []
