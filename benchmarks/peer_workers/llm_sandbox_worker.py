"""llm-sandbox: a session, its pool of containers, and its interactive session."""

from typing import Any

from llm_sandbox import SandboxBackend, SandboxSession  # type: ignore[import-not-found]
from llm_sandbox.interactive import InteractiveSandboxSession  # type: ignore[import-not-found]
from llm_sandbox.pool import PoolConfig, create_pool_manager  # type: ignore[import-not-found]
from llm_sandbox.pool.session import PooledSandboxSession  # type: ignore[import-not-found]

from benchmarks.peer_workers.protocol import Close, Peer, expect, printing, serve

_POOLED = 1


class LlmSandbox(Peer):
    """llm-sandbox with its Docker backend."""

    package = "llm-sandbox"

    def __init__(self, image: str, gateway_image: str) -> None:
        super().__init__(image, gateway_image)
        self._open: Any = None
        self._interactive: Any = None
        self._pool: Any = None

    def prepare(self, ability: str) -> None:
        """Open the session that is kept, or fill the pool."""
        if ability in {"command", "output"} and self._open is None:
            self._open = self._session()
            self._open.open()
        if ability == "cell" and self._interactive is None:
            self._interactive = self._interactive_session()
            self._interactive.open()
        if ability.startswith("warm") and self._pool is None:
            # It needs its default set-up: the environment in which the code then runs.
            self._pool = create_pool_manager(
                backend=SandboxBackend.DOCKER,
                config=PoolConfig(min_pool_size=_POOLED, max_pool_size=_POOLED),
                lang="python",
                image=self.image,
            )
            with PooledSandboxSession(pool_manager=self._pool) as session:
                expect(session.run("print(1)").stdout, "1")

    def cold(self) -> Close:
        """A session without the set-up that only code in Python needs."""
        session = self._session()
        session.open()
        expect(session.execute_command("echo hello").stdout, "hello")
        close: Close = session.close
        return close

    def warm_command(self) -> Close:
        """A command in a pooled session."""
        session = PooledSandboxSession(pool_manager=self._pool)
        session.open()
        expect(session.execute_command("echo hello").stdout, "hello")
        close: Close = session.close
        return close

    def warm_code(self) -> Close:
        """Code in a pooled session."""
        session = PooledSandboxSession(pool_manager=self._pool)
        session.open()
        expect(session.run("print(1)").stdout, "1")
        close: Close = session.close
        return close

    def first_cell(self) -> Close:
        """An interactive session and its first cell."""
        session = self._interactive_session()
        session.open()
        expect(session.run("print(1)").stdout, "1")
        close: Close = session.close
        return close

    def command(self) -> None:
        """A command in the open session."""
        expect(self._open.execute_command("echo hello").stdout, "hello")

    def cell(self) -> None:
        """A cell in the open interactive session."""
        expect(self._interactive.run("print(1)").stdout, "1")

    def output(self, size: int) -> int:
        """Through its callback, the one way by which it streams."""
        came = 0

        def take(piece: str) -> None:
            nonlocal came
            self.note_piece()
            came += len(piece)

        self._open.execute_command(f'sh -c "{printing(size)}"', on_stdout=take)
        return came

    def close(self) -> None:
        """End what is kept."""
        for each in (self._open, self._interactive, self._pool):
            if each is not None:
                each.close()

    def _session(self) -> Any:
        return SandboxSession(lang="python", image=self.image, skip_environment_setup=True)

    def _interactive_session(self) -> Any:
        return InteractiveSandboxSession(image=self.image)


if __name__ == "__main__":
    serve(LlmSandbox)
