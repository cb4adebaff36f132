"""The engine goes away, comes back, refuses, or was never there: a typed error in bounded time, never a success."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from aeolus_sandbox import (
    EngineError,
    EngineUnavailable,
    ExitStatus,
    SessionBroken,
    SessionManager,
    Text,
)
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from tests.integration.running import (
    PATIENCE_S,
    TerminalSession,
    containers_of,
    open_command,
    read_until,
    run_command,
    wait_until_none,
)
from tests.integration.second_engine import CuttingProxy, SecondEngine, serve_http

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.xdist_group("second engine")]

BOUND_S: Final = 60
OLD_API: Final = json.dumps({"ApiVersion": "1.24", "MinAPIVersion": "1.12", "Version": "1.12.6"})


async def _status_after_the_loss(session: TerminalSession) -> ExitStatus:
    """Return how a session says that it ended; it must say so soon, and not as a success."""
    began = time.monotonic()
    with suppress(SessionBroken):
        async with asyncio.timeout(BOUND_S):
            await session.finalize()
    assert time.monotonic() - began < BOUND_S
    assert session.status is not None
    assert session.status.reason in {"lost", "killed"}
    assert not session.status.ok
    return session.status


# The engine itself ends.


@pytest.mark.parametrize("tty", [True, False])
async def test_killed_engine_breaks_the_session_and_its_containers_go_when_it_is_back(
    second_engine: SecondEngine, tty: bool
) -> None:
    manager = SessionManager(docker_host=second_engine.address)
    session = await open_command(manager, "echo up; sleep 300; exit 0", tty=tty)
    await read_until(session, "up")
    await asyncio.to_thread(second_engine.kill)
    await _status_after_the_loss(session)
    async with asyncio.timeout(BOUND_S):
        await session.aclose()
    await asyncio.to_thread(second_engine.start)
    async with asyncio.timeout(BOUND_S):
        await manager.aclose()
    async with DockerEngine(second_engine.address) as engine:
        await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=BOUND_S)


async def test_engine_that_stays_away_is_told_and_a_guard_removes_what_is_left(
    second_engine: SecondEngine,
) -> None:
    manager = SessionManager(docker_host=second_engine.address)
    session = await open_command(manager, "echo up; sleep 300; exit 0")
    await read_until(session, "up")
    await asyncio.to_thread(second_engine.kill)
    try:
        await _status_after_the_loss(session)
        with pytest.raises(EngineError):
            async with asyncio.timeout(BOUND_S):
                await manager.aclose()
    finally:
        await asyncio.to_thread(second_engine.start)
    async with DockerEngine(second_engine.address) as engine:
        await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=BOUND_S)


@pytest.mark.parametrize("tty", [True, False])
async def test_restarted_engine_ends_the_session_with_the_truth(
    second_engine: SecondEngine, tty: bool
) -> None:
    async with SessionManager(docker_host=second_engine.address) as manager:
        session = await open_command(manager, "echo up; sleep 300; exit 0", tty=tty)
        await read_until(session, "up")
        restart = asyncio.get_running_loop().run_in_executor(None, second_engine.stop)
        await _status_after_the_loss(session)
        await restart
        await asyncio.to_thread(second_engine.start)
        outcome = await run_command(manager, "echo works again")
        assert outcome.text == "works again\r\n"
    async with DockerEngine(second_engine.address) as engine:
        assert await containers_of(engine, manager.owner) == []


# Connections are cut.


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[CuttingProxy]:
    """Give a proxy in front of the user's engine."""
    async with DockerEngine() as engine:
        address = engine.address
    if not address.startswith("unix://"):
        pytest.fail(f"these tests cut connections of a local engine, not of {address!r}")
    between = CuttingProxy(Path(address.removeprefix("unix://")), tmp_path)
    await between.start()
    yield between
    await between.cut()


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("variant", ["still running", "has exited meanwhile", "is gone meanwhile"])
async def test_cut_connections_never_look_like_an_end(
    engine: DockerEngine, proxy: CuttingProxy, tty: bool, variant: str
) -> None:
    async with SessionManager(docker_host=proxy.address) as manager:
        session = await open_command(manager, "echo up; read -r line; echo end; exit 0", tty=tty)
        await read_until(session, "up")
        [container] = await containers_of(engine, manager.owner)
        loop = asyncio.get_running_loop()
        if variant == "has exited meanwhile":
            await session.send_stdin(Text("go\n"))
        await proxy.cut()
        if variant == "is gone meanwhile":
            await engine.remove_container(container.id)
        began = loop.time()
        loop.call_later(3, lambda: loop.create_task(proxy.start()))
        with suppress(SessionBroken):
            async with asyncio.timeout(BOUND_S):
                await session.finalize()
        assert session.status is not None
        # `exited` only if it had, and it could be asked once the engine answered again.
        truths = {"lost", "killed"} | ({"exited"} if variant == "has exited meanwhile" else set())
        assert session.status.reason in truths
        assert loop.time() - began < BOUND_S
        await asyncio.sleep(max(0, began + 3.5 - loop.time()))  # until the engine answers again
    await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=PATIENCE_S)


async def test_session_opens_again_after_the_connections_were_cut(
    engine: DockerEngine, proxy: CuttingProxy
) -> None:
    async with SessionManager(docker_host=proxy.address) as manager:
        assert (await run_command(manager, "echo one", tty=False)).text == "one\n"
        await proxy.cut()
        await proxy.start()
        assert (await run_command(manager, "echo two", tty=False)).text == "two\n"


async def test_waiting_reader_and_sender_are_told(engine: DockerEngine, proxy: CuttingProxy) -> None:
    async with SessionManager(docker_host=proxy.address) as manager:
        session = await open_command(manager, "echo up; sleep 300; :")
        await read_until(session, "up")
        reading = asyncio.get_running_loop().create_task(session.next_chunk())
        await asyncio.sleep(0)
        await proxy.cut()
        with pytest.raises(SessionBroken):
            async with asyncio.timeout(BOUND_S):
                await reading
        with pytest.raises(Exception, match=r"ended|closed"):
            await session.send_stdin(Text("x"))
        await proxy.start()
    await wait_until_none(engine, {OWNER_LABEL: manager.owner}, within_s=PATIENCE_S)


# It was never there.


async def _refusal(address: str) -> str:
    async with SessionManager(docker_host=address) as manager:
        with pytest.raises(EngineUnavailable) as caught:
            async with asyncio.timeout(BOUND_S):
                await run_command(manager, "true")
        assert manager.open_sessions == []
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


async def test_missing_socket_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.sock"
    message = await _refusal(f"unix://{path}")
    assert str(path) in message
    assert "DOCKER_HOST" in message


async def test_socket_that_nobody_serves_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    message = await _refusal(f"unix://{path}")
    assert str(path) in message
    assert "start Docker" in message


def test_socket_without_permission_is_named_with_what_to_do(tmp_path: Path) -> None:
    # The folder is open and the socket is not; a process without rights tries.
    folder = tmp_path.parent
    path = tmp_path / "closed.sock"
    program = (
        "import asyncio, os, sys\n"
        "from aeolus_sandbox import EngineUnavailable\n"
        "from aeolus_sandbox.engine.docker import DockerEngine\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "async def main():\n"
        "    async with DockerEngine(sys.argv[1]) as engine:\n"
        "        try: await engine.info()\n"
        "        except EngineUnavailable as error: print(error)\n"
        "asyncio.run(main())\n"
    )
    assert os.getuid() == 0, "this test gives up root's rights, so it needs them first"
    for each in (tmp_path, folder, folder.parent):
        each.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(path))
        closed.listen()
        path.chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-c", program, f"unix://{path}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    message = done.stdout.strip()
    assert str(path) in message, done.stderr
    assert "group" in message
    assert "\n" not in message


async def test_engine_that_is_too_old_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "old.sock"

    def answer(request: str) -> tuple[int, str]:
        if "/version" in request:
            return 200, OLD_API
        return 400, json.dumps(
            {"message": "client version 1.40 is too new. Maximum supported API version is 1.24"}
        )

    server = await serve_http(path, answer)
    try:
        async with SessionManager(docker_host=f"unix://{path}") as manager:
            with pytest.raises(EngineError) as caught:
                async with asyncio.timeout(BOUND_S):
                    await run_command(manager, "true")
    finally:
        server.close()
    message = str(caught.value)
    assert "1.24" in message
    assert "too old" in message or "too new" in message
    assert "\n" not in message


async def test_what_is_no_engine_at_all_is_an_engine_error(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    server = await serve_http(path, lambda _: (200, "<html>hello</html>"))
    try:
        async with SessionManager(docker_host=f"unix://{path}") as manager:
            with pytest.raises(EngineError):
                async with asyncio.timeout(BOUND_S):
                    await run_command(manager, "true")
    finally:
        server.close()


async def test_socket_that_never_answers_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(64)
        async with DockerEngine(f"unix://{path}", call_timeout_s=0.5) as engine:
            with pytest.raises(EngineError, match=r"0\.5 s"):
                async with asyncio.timeout(BOUND_S):
                    await engine.info()


async def test_removal_that_fails_once_is_tried_again(tmp_path: Path, engine: DockerEngine) -> None:
    # A container that could not be removed stays known, and goes when the manager closes.
    proxy_folder = tmp_path
    between = CuttingProxy(Path(engine.address.removeprefix("unix://")), proxy_folder)
    await between.start()
    manager = SessionManager(docker_host=between.address)
    session = await open_command(manager, "echo up; sleep 300; :")
    await read_until(session, "up")
    await between.cut()
    async with asyncio.timeout(BOUND_S):
        await session.aclose()
    assert len(await containers_of(engine, manager.owner)) == 1
    await between.start()
    async with asyncio.timeout(BOUND_S):
        await manager.aclose()
    assert await containers_of(engine, manager.owner) == []
    await between.cut()
