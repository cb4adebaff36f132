"""AutoGen: its Docker command line executor, and its Jupyter executor with a gateway in a container."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from autogen_core import CancellationToken  # type: ignore[import-not-found]
from autogen_core.code_executor import CodeBlock  # type: ignore[import-not-found]
from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor  # type: ignore[import-not-found]
from autogen_ext.code_executors.docker_jupyter import DockerJupyterCodeExecutor, DockerJupyterServer  # type: ignore[import-not-found]

from benchmarks.peer_workers.protocol import Close, Peer, expect, printing, serve

_READY_TRIES = 200
_READY_PAUSE_S = 0.05
_CODE_TIMEOUT_S = 60


class AutoGen(Peer):
    """autogen-ext; each sandbox has a loop of its own."""

    package = "autogen-ext"

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._shell: _Shell | None = None
        self._kernel: _Kernel | None = None

    def prepare(self, ability: str) -> None:
        """Start the executor that is kept."""
        if ability in {"command", "output"} and self._shell is None:
            self._shell = _Shell(self.image)
        if ability == "cell" and self._kernel is None:
            self._kernel = _Kernel(self.gateway_image)

    def cold(self) -> Close:
        """The command line executor and its first command."""
        shell = _Shell(self.image)
        expect(shell.said("sh", "echo hello"), "hello")
        return shell.close

    def first_cell(self) -> Close:
        """The Jupyter executor and its first cell."""
        kernel = _Kernel(self.gateway_image)
        expect(kernel.said("python", "print(1)"), "1")
        return kernel.close

    def command(self) -> None:
        """A command in the open executor."""
        assert self._shell is not None
        expect(self._shell.said("sh", "echo hello"), "hello")

    def cell(self) -> None:
        """A cell in the open Jupyter executor."""
        assert self._kernel is not None
        expect(self._kernel.said("python", "print(1)"), "1")

    def output(self, size: int) -> int:
        """A command, whose output comes at its end."""
        assert self._shell is not None
        return len(self._shell.said("sh", printing(size)))

    def close(self) -> None:
        """Stop what is kept."""
        for each in (self._shell, self._kernel):
            if each is not None:
                each.close()


class _Running:
    """An executor in a loop of its own."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._executor: Any = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def said(self, language: str, code: str) -> str:
        result = self.run(
            self._executor.execute_code_blocks([CodeBlock(code=code, language=language)], CancellationToken())
        )
        assert result.exit_code == 0, result.output[:200]
        return str(result.output)


class _Shell(_Running):
    def __init__(self, image: str) -> None:
        super().__init__()
        self._executor = DockerCommandLineCodeExecutor(image=image)
        self.run(self._executor.start())

    def close(self) -> None:
        self.run(self._executor.stop())
        self._runner.close()


class _Kernel(_Running):
    def __init__(self, gateway_image: str) -> None:
        super().__init__()
        self._server = DockerJupyterServer(custom_image_name=gateway_image)
        self._executor = DockerJupyterCodeExecutor(self._server, timeout=_CODE_TIMEOUT_S)
        self.run(self._start())

    async def _start(self) -> None:
        # It takes a container that runs for a gateway that answers.
        for _ in range(_READY_TRIES):
            try:
                await self._executor.start()
            except Exception:  # noqa: BLE001 - the library's own error differs with how far the gateway has come
                await asyncio.sleep(_READY_PAUSE_S)
            else:
                return
        await self._executor.start()

    def close(self) -> None:
        self.run(self._executor.stop())
        self.run(self._server.stop())
        self._runner.close()


if __name__ == "__main__":
    serve(AutoGen)
