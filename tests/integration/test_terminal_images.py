"""Images that have no shell, or no `stty`, or do not exist."""

import uuid
from collections.abc import Iterator

import docker
import pytest

from aeolus_sandbox import ImageNotFound, SessionManager, ShellMissing, TerminalTool, Text
from aeolus_sandbox.engine.docker import DockerEngine
from tests.integration.running import (
    containers_of,
    open_command,
    read_rest,
    read_until,
    result_of,
    run_command,
)

pytestmark = pytest.mark.docker

PROGRAM = (
    "import os, sys; print(ascii(sys.argv[1:]), os.environ['A'], os.getuid(), os.getcwd(), flush=True); "
    "line = input(); print(*os.get_terminal_size() if os.isatty(0) else ['pipes']); print('got', line); sys.exit(7)"
)


def _shell_image_without(shell_image: str, removal: str) -> Iterator[str]:
    client = docker.from_env()
    tag = f"aeolus-test-without:{uuid.uuid4().hex}"
    maker = client.containers.create(shell_image, ["sh", "-c", removal], user="0:0", network_mode="none")
    try:
        maker.start()
        assert maker.wait(timeout=60)["StatusCode"] == 0
        maker.commit(*tag.split(":"))
    finally:
        maker.remove(force=True)
    yield tag
    client.images.remove(tag, force=True)
    client.close()


@pytest.fixture(scope="module")
def bare_image(shell_image: str) -> Iterator[str]:
    """Give an image that has programs, and no shell."""
    yield from _shell_image_without(shell_image, "rm -f /bin/sh /bin/dash /bin/bash /usr/bin/rbash")


@pytest.fixture(scope="module")
def image_without_stty(shell_image: str) -> Iterator[str]:
    """Give an image like `shell`, without `stty`."""
    yield from _shell_image_without(shell_image, 'rm -f "$(command -v stty)"')


@pytest.mark.parametrize("tty", [True, False])
async def test_image_without_a_shell_launches_cold(
    manager: SessionManager, engine: DockerEngine, bare_image: str, tty: bool
) -> None:
    for _ in range(2):  # the second time it is known that it cannot be parked
        session = await open_command(
            manager,
            ("python3", "-c", PROGRAM, "a 'b\n", "$c"),
            tool=TerminalTool(image=bare_image),
            env={"A": "x y"},
            cwd="/tmp",
            cols=100,
            rows=30,
            tty=tty,
        )
        said = await read_until(session, "\n")  # before the terminal echoes what is typed
        await session.send_stdin(Text("line\n"))
        text = (said + await read_rest(session)).replace("\r\n", "\n")
        first, *_, size, last = text.splitlines()
        assert first == ascii(["a 'b\n", "$c"]) + " x y 10001 /tmp"
        assert (size, last) == ("100 30" if tty else "pipes", "got line")
        result = await result_of(session)
        assert (result.status.reason, result.exit_code) == ("exited", 7)
        await session.aclose()
    assert await containers_of(engine, manager.owner) == []


async def test_command_line_in_an_image_without_a_shell_is_refused(
    manager: SessionManager, engine: DockerEngine, bare_image: str
) -> None:
    for _ in range(2):
        with pytest.raises(ShellMissing):
            await run_command(manager, "python3 -V", tool=TerminalTool(image=bare_image))
    with pytest.raises(ShellMissing):
        await run_command(manager, ("python3", "-V"), tool=TerminalTool(image=bare_image), files={"x": b"y"})


async def test_program_that_an_image_without_a_shell_lacks_is_an_error_or_a_code(
    manager: SessionManager, bare_image: str
) -> None:
    outcome = await run_command(manager, ("/bin/nope",), tool=TerminalTool(image=bare_image), tty=False)
    assert outcome.result.exit_code == 127


async def test_image_without_stty_still_has_a_terminal(
    manager: SessionManager, image_without_stty: str
) -> None:
    tool = TerminalTool(image=image_without_stty)
    # Here the size can be set only after the start: it is right once the session is open.
    program = "import os; line = input(); print(os.isatty(0), *os.get_terminal_size())"
    session = await open_command(manager, ("python3", "-c", program), tool=tool, cols=100, rows=30)
    await session.send_stdin(Text("line\n"))
    words = (await read_rest(session)).split()
    assert [word for word in words if word != "line"][:3] == ["True", "100", "30"]
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_image_without_stty_is_parked_on_pipes(
    manager: SessionManager, image_without_stty: str
) -> None:
    outcome = await run_command(
        manager,
        "cat x; exit 3",
        tool=TerminalTool(image=image_without_stty),
        tty=False,
        files={"x": b"content"},
    )
    assert (outcome.text, outcome.result.exit_code) == ("content", 3)


async def test_missing_image_is_named(manager: SessionManager) -> None:
    with pytest.raises(ImageNotFound, match="no-such-image:at-all"):
        await run_command(manager, "true", tool=TerminalTool(image="no-such-image:at-all"))
    assert manager.open_sessions == []
