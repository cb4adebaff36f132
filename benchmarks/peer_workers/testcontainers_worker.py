"""testcontainers: a container object that is started, and `exec` in it."""

from testcontainers.core.config import testcontainers_config  # type: ignore[import-not-found]
from testcontainers.core.container import DockerContainer  # type: ignore[import-not-found]

from benchmarks.peer_workers.protocol import Close, Peer, expect, printing, serve

# Its own reaper is an image of a registry, which nobody may be able to pull.
testcontainers_config.ryuk_disabled = True


class Testcontainers(Peer):
    """testcontainers-python."""

    package = "testcontainers"

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._open: DockerContainer | None = None

    def prepare(self, ability: str) -> None:
        """Start the container that is kept open."""
        if ability in {"command", "output"} and self._open is None:
            self._open = self._started()

    def cold(self) -> Close:
        """Start, exec, stop."""
        container = self._started()
        expect(_said(container, ["echo", "hello"]), "hello")
        close: Close = container.stop
        return close

    def command(self) -> None:
        """`exec` in the open container."""
        assert self._open is not None
        expect(_said(self._open, ["echo", "hello"]), "hello")

    def output(self, size: int) -> int:
        """`exec`, which returns all output at its end."""
        assert self._open is not None
        return len(self._open.exec(["sh", "-c", printing(size)]).output)

    def close(self) -> None:
        """Remove the open container."""
        if self._open is not None:
            self._open.stop()

    def _started(self) -> DockerContainer:
        return DockerContainer(self.image).with_command("sleep infinity").start()


def _said(container: DockerContainer, argv: list[str]) -> str:
    result = container.exec(argv)
    assert result.exit_code == 0, result
    return str(result.output.decode())


if __name__ == "__main__":
    serve(Testcontainers)
