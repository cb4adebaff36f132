"""The plain `docker` program: `docker run` for a new container, `docker exec` in an open one."""

import subprocess

from benchmarks.peer_workers.protocol import Close, Peer, expect, printing, serve

_LIMIT_S = 60


class DockerCommandLine(Peer):
    """What one does by hand."""

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._open = ""

    def prepare(self, ability: str) -> None:
        """Start the container that `docker exec` runs in."""
        if ability in {"command", "output"} and not self._open:
            self._open = _said("run", "--detach", "--rm", "--init", self.image, "sleep", "infinity").strip()

    def cold(self) -> Close:
        """`docker run`: its first output, and its end."""
        argv = ["docker", "run", "--rm", self.image, "echo", "hello"]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        expect(process.stdout.readline(), "hello")

        def end() -> None:
            with process:
                process.wait(_LIMIT_S)

        return end

    def command(self) -> None:
        """`docker exec`."""
        expect(_said("exec", self._open, "echo", "hello"), "hello")

    def output(self, size: int) -> int:
        """`docker exec`, read piece by piece."""
        argv = ["docker", "exec", self._open, "sh", "-c", printing(size)]
        came = 0
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdout is not None
            while piece := process.stdout.read(2**16):
                self.note_piece()
                came += len(piece)
        return came

    def close(self) -> None:
        """Remove the open container."""
        if self._open:
            _said("rm", "--force", self._open)


def _said(*arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], check=True, capture_output=True, text=True, timeout=_LIMIT_S
    ).stdout


if __name__ == "__main__":
    serve(DockerCommandLine)
