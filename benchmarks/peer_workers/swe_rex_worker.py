"""SWE-ReX: a deployment whose runtime serves commands over HTTP."""

import asyncio
import logging

from swerex.deployment.docker import DockerDeployment  # type: ignore[import-not-found]
from swerex.runtime.abstract import Command  # type: ignore[import-not-found]

from benchmarks.peer_workers.protocol import Close, Peer, expect, printing, serve

logging.disable(logging.CRITICAL)


class SweRex(Peer):
    """swe-rex with its Docker deployment; each sandbox has a loop of its own, because it sleeps in async code."""

    package = "swe-rex"

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._open: _Deployed | None = None

    def prepare(self, ability: str) -> None:
        """Start the deployment that is kept."""
        if ability in {"command", "output"} and self._open is None:
            self._open = _Deployed(self.image)

    def cold(self) -> Close:
        """A deployment, and a command without a session."""
        deployed = _Deployed(self.image)
        expect(deployed.said(["echo", "hello"]), "hello")
        return deployed.close

    def command(self) -> None:
        """A command without a session: its bash session takes longer."""
        assert self._open is not None
        expect(self._open.said(["echo", "hello"]), "hello")

    def output(self, size: int) -> int:
        """A command without a session; in its bash session it takes minutes."""
        assert self._open is not None
        return len(self._open.said(["sh", "-c", printing(size)]))

    def close(self) -> None:
        """Stop the deployment that is kept."""
        if self._open is not None:
            self._open.close()


class _Deployed:
    def __init__(self, image: str) -> None:
        self._runner = asyncio.Runner()
        self.run = self._runner.run
        self.deployment = DockerDeployment(image=image, pull="never")
        self.run(self.deployment.start())

    def said(self, argv: list[str]) -> str:
        response = self.run(self.deployment.runtime.execute(Command(command=argv)))
        assert response.exit_code == 0, response.stderr[:200]
        return str(response.stdout)

    def close(self) -> None:
        self.run(self.deployment.stop())
        self._runner.close()


if __name__ == "__main__":
    serve(SweRex)
