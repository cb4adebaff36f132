"""gVisor beside the host's own kernel: the tools keep their promises, and the barriers stand."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Final

import pytest

from aeolus_sandbox import (
    CodeInterpreterTool,
    ConfigurationError,
    IsolationMode,
    Limits,
    RuntimeMissing,
    SessionManager,
    StreamingToolSession,
    TerminalTool,
)
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.hardening import GVISOR_RUNTIME, container_spec
from aeolus_sandbox.limits import MIB, LimitName
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.sandboxes.launch_line import park_command
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.sandboxes.parked import ParkedContainer
from aeolus_sandbox.streaming.stdin import Signal, UnixSignal
from aeolus_sandbox.tools.log_tailer import LogChunk, LogResult, LogTailerInput, LogTailerTool
from tests.conformance.cells import CELLS, LANGUAGES
from tests.integration.code_runs import Ran, finish, open_code, run_code
from tests.integration.code_runs import read_until as read_code_until
from tests.integration.conftest import StartOwner
from tests.integration.running import (
    PATIENCE_S,
    open_command,
    read_until,
    result_of,
    run_command,
    wait_until_none,
)
from tests.integration.second_engine import SecondEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

TERMINAL: Final = TerminalTool(isolation=IsolationMode.GVISOR)
CODE: Final = CodeInterpreterTool(isolation=IsolationMode.GVISOR)
TAILER: Final = LogTailerTool(isolation=IsolationMode.GVISOR)
SECCOMP: Final = (Path(__file__).resolve().parents[2] / "seccomp" / "default.json").read_text("utf-8")
MAY_LOSE_STATE: Final = {"javascript", "typescript"}
"""Deno's kernel can end when it is interrupted."""


# The kernel is another one.


@pytest.mark.parametrize("tty", [True, False])
async def test_terminal_runs_on_gvisors_kernel(manager: SessionManager, tty: bool) -> None:
    ran = await run_command(manager, "dmesg | head -n 1; uname -r; exit 7", tool=TERMINAL, tty=tty)
    assert "Starting gVisor" in ran.text
    assert Path("/proc/sys/kernel/osrelease").read_text() not in ran.text
    assert (ran.result.status.reason, ran.result.exit_code) == ("exited", 7)


async def test_pipes_are_apart_and_input_ends(manager: SessionManager) -> None:
    ran = await run_command(manager, "echo out; echo err >&2", tool=TERMINAL, tty=False)
    assert (ran.stdout, ran.stderr) == (b"out\n", b"err\n")


async def test_ten_mebibytes_arrive_whole(manager: SessionManager) -> None:
    command = "head -c 10485760 /dev/zero | tr '\\0' x"
    ran = await run_command(manager, command, tool=TERMINAL, tty=False)
    assert ran.result.stdout_bytes == 10 * MIB
    assert ran.stdout == b"x" * (10 * MIB)


async def test_interrupt_reaches_the_program_in_front(manager: SessionManager) -> None:
    command = "trap 'echo caught; exit 3' INT; echo up; while :; do sleep 0.1; done"
    async with await open_command(manager, command, tool=TERMINAL, tty=True) as session:
        await read_until(session, "up")
        await session.send_stdin(Signal(UnixSignal.SIGINT))
        await read_until(session, "caught")
        assert (await result_of(session)).exit_code == 3


async def test_time_limit_ends_what_ignores_all_signals(manager: SessionManager) -> None:
    command = "trap '' INT TERM HUP QUIT; echo up; while :; do sleep 1; done"
    ran = await run_command(manager, command, tool=TERMINAL, tty=True, timeout_s=2)
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)


async def test_program_that_takes_all_memory_is_ended(manager: SessionManager) -> None:
    small = Limits(memory_bytes=128 * MIB)
    command = ("python3", "-c", "x = bytearray(1 << 30); print(len(x))")
    ran = await run_command(manager, command, tool=TERMINAL, tty=False, limits=small)
    assert ran.result.status.reason in {"out_of_memory", "killed"}  # the engine misses the reason at times
    assert ran.result.exit_code == 137
    assert "1073741824" not in ran.text


# The barriers.


async def test_hardening_holds(manager: SessionManager) -> None:
    script = (
        "import json, os\n"
        "status = dict(line.split(':\\t') for line in open('/proc/self/status') if ':\\t' in line)\n"
        "def writes(path):\n"
        "    try: open(path, 'w').close(); return True\n"
        "    except OSError: return False\n"
        "print(json.dumps({'uid': os.getuid(), 'capabilities': [status[n].strip() for n in status if n[:3] == 'Cap'],"
        " 'root': [writes(f + '/x') for f in ('/', '/etc', '/usr/bin')], 'workspace': writes('/workspace/x'),"
        " 'interfaces': [line.split(':')[0].strip() for line in open('/proc/net/dev')][2:],"
        " 'size': os.statvfs('/workspace').f_blocks * os.statvfs('/workspace').f_frsize}))"
    )
    ran = await run_command(manager, ("python3", "-c", script), tool=TERMINAL, tty=False)
    seen = json.loads(ran.stdout)
    assert seen["uid"] == 10001
    assert set(seen["capabilities"]) == {"0000000000000000"}
    assert not any(seen["root"])
    assert seen["workspace"]
    assert set(seen["interfaces"]) <= {"lo"}
    assert seen["size"] == 256 * MIB


async def test_there_is_no_network(manager: SessionManager) -> None:
    script = "import socket; socket.create_connection(('1.1.1.1', 53), 5)"
    ran = await run_command(manager, ("python3", "-c", script), tool=TERMINAL, tty=False)
    assert ran.result.exit_code == 1
    assert "OSError" in ran.text


# Languages.


@pytest.mark.parametrize("language", LANGUAGES)
async def test_language_keeps_its_state_also_when_it_is_interrupted(
    manager: SessionManager, language: str
) -> None:
    async def run(cell: str) -> Ran:
        return await run_code(manager, CELLS[language][cell], tool=CODE, language=language, session_id="one")

    assert (await run("print")).text().strip() == "hello"
    await run("set")
    if "image" in CELLS[language]:
        assert (await run("image")).of("image")
    busy = CELLS[language]["busy"]
    async with await open_code(manager, busy, tool=CODE, language=language, session_id="one") as session:
        await read_code_until(session, "on")
        await session.cancel()
        assert (await finish(session)).status.reason == "cancelled"
    ran = await run("get")
    if not (language in MAY_LOSE_STATE and ran.result.environment_recreated):
        assert "42" in (ran.result.result or "") + ran.text()
        assert not ran.result.environment_recreated


async def test_time_limit_of_a_cell_is_said_and_the_state_kept(manager: SessionManager) -> None:
    cells = CELLS["python"]
    await run_code(manager, cells["set"], tool=CODE, session_id="one")
    ran = await run_code(manager, cells["sleep"], tool=CODE, session_id="one", timeout_s=2)
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    after = await run_code(manager, cells["get"], tool=CODE, session_id="one")
    assert after.result.result == "42"


@pytest.mark.parametrize("language", [name for name in LANGUAGES if "memory" in CELLS[name]])
async def test_code_that_takes_all_memory_is_ended_and_the_next_call_works(
    manager: SessionManager, language: str
) -> None:
    small = Limits(memory_bytes=320 * MIB)
    settings = {"tool": CODE, "language": language, "session_id": "one", "limits": small}
    ran = await run_code(manager, CELLS[language]["memory"], **settings)
    # The engine misses the reason at times, because the kernel that is killed is all that the container has.
    assert ran.result.status.reason in {"out_of_memory", "killed"}, ran.result.error
    assert (ran.result.success, ran.error_name) == (False, "KernelDied")
    after = await run_code(manager, CELLS[language]["print"], **settings)
    assert after.text().strip() == "hello"
    assert after.result.environment_recreated


async def test_kernel_is_not_passed_off_as_one_of_another_isolation(manager: SessionManager) -> None:
    await run_code(manager, "1", session_id="one")
    with pytest.raises(ConfigurationError, match="isolation is container, and not gvisor"):
        await run_code(manager, "1", tool=CODE, session_id="one")


# Log files.


async def test_log_is_followed_through_a_rotation_and_gone_on_with(
    engine: DockerEngine, tmp_path: Path
) -> None:
    folder = tmp_path.resolve() / "logs"
    folder.mkdir(mode=0o755)
    log = folder / "app.log"
    log.write_text("one\ntwo\n")
    async with (
        asyncio.timeout(PATIENCE_S),
        SessionManager(grants=Grants.of(ReadLogs(roots=[str(folder)]))) as manager,
    ):
        async with await manager.open(TAILER, LogTailerInput(path=str(log))) as session:
            assert [chunk.message async for chunk in session] == ["one", "two"]
            cursor = (await session.finalize()).cursor
        log.with_name("other.log").write_text("changes the folder, and the order of its files\n")
        again = LogTailerInput(path=str(log), follow=True, from_cursor=cursor)
        async with await manager.open(TAILER, again) as session:
            _append(log, "three\n")
            assert await _next_line(session) == "three"
            log.rename(log.with_name("app.log.1"))
            log.write_text("four\n")
            assert await _next_line(session) == "four"
            await session.cancel()
            assert (await session.finalize()).rotations == 1
    assert await engine.list_containers({OWNER_LABEL: manager.owner}) == []


def _append(log: Path, text: str) -> None:
    with log.open("a") as stream:
        stream.write(text)


async def _next_line(session: StreamingToolSession[LogChunk, LogResult]) -> str:
    while True:
        chunk = await session.next_chunk()
        assert chunk is not None
        if chunk.notice is None:
            return chunk.message


# No orphans, and no other runtime.


@pytest.mark.parametrize("tty", [True, False])
async def test_container_ends_at_its_deadline_although_nobody_ends_it(
    engine: DockerEngine, shell_image: str, tty: bool
) -> None:
    spec = container_spec(
        SandboxProfile(image="shell", tty=tty),
        image=shell_image,
        argv=park_command(tty=tty, deadline_s=2),
        limits=Limits(),
        labels={OWNER_LABEL: str(Owner.this_process())},
        seccomp=SECCOMP,
        isolation=IsolationMode.GVISOR,
    )
    container = await engine.launch(spec)
    try:
        async with asyncio.timeout(PATIENCE_S):
            parked = ParkedContainer(container, tty=tty)
            await parked.wait_ready()
            await parked.exec(["sh", "-c", "trap '' HUP INT QUIT TERM; while :; do sleep 300; done"])
            assert (await container.wait_exit()).code == 137
    finally:
        await container.aclose()


async def test_crash_of_the_host_leaves_no_container(engine: DockerEngine, start_owner: StartOwner) -> None:
    owner = await start_owner("gvisor-tty,gvisor-pipes", "wait")
    owner.process.send_signal(signal.SIGKILL)
    await owner.wait_ended()
    await wait_until_none(engine, {OWNER_LABEL: owner.owner}, within_s=PATIENCE_S)


@pytest.mark.xdist_group("second engine")
async def test_engine_without_gvisor_says_so_and_uses_nothing_else(second_engine: SecondEngine) -> None:
    async with SessionManager(docker_host=second_engine.address) as manager:
        with pytest.raises(RuntimeMissing, match=f"{GVISOR_RUNTIME!r}.*scripts/setup gvisor"):
            await run_command(manager, "true", tool=TERMINAL)
    async with DockerEngine(second_engine.address) as engine:
        assert await engine.list_containers({OWNER_LABEL: manager.owner}) == []
