"""smolagents: its Docker executor, a kernel gateway in a container."""

import socket
from typing import Any

from smolagents.monitoring import AgentLogger, LogLevel  # type: ignore[import-not-found]
from smolagents.remote_executors import DockerExecutor  # type: ignore[import-not-found]

from benchmarks.peer_workers.protocol import Close, Peer, expect, serve


class Smolagents(Peer):
    """smolagents' DockerExecutor; it runs code and no commands."""

    package = "smolagents"

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._open: Any = None

    def prepare(self, ability: str) -> None:
        """Start the executor that is kept."""
        if ability == "cell" and self._open is None:
            self._open = self._executor()

    def first_cell(self) -> Close:
        """An executor and its first code."""
        executor = self._executor()
        expect(executor("print(1)").logs, "1")
        close: Close = executor.cleanup
        return close

    def cell(self) -> None:
        """Code in the open executor."""
        expect(self._open("print(1)").logs, "1")

    def close(self) -> None:
        """Remove the executor that is kept."""
        if self._open is not None:
            self._open.cleanup()

    def _executor(self) -> Any:
        return DockerExecutor(
            [],
            AgentLogger(level=LogLevel.OFF),
            port=_free_port(),
            image_name=self.gateway_image,
            build_new_image=False,
        )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    serve(Smolagents)
