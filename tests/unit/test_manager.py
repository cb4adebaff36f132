"""The front door: what it refuses before anything happens, and that nothing is left when anything ends."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from aeolus_sandbox.capabilities import CapabilityKind, Grants
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.errors import (
    CapabilityDenied,
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    ImageNotFound,
    LaunchFailed,
    QuotaExceeded,
    RuntimeMissing,
    SessionBroken,
    SessionClosed,
    ShellMissing,
)
from aeolus_sandbox.limits import LimitName, Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.policies import Buffer
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.stdin import Bytes, EndOfInput, Resize, Signal, Text, UnixSignal
from aeolus_sandbox.streaming.tool import IsolationMode, StreamingTool, StreamingToolHandle, ToolContext
from aeolus_sandbox.testing.local_engine import LocalEngine
from aeolus_sandbox.tools.code_interpreter import CodeInterpreterTool
from aeolus_sandbox.tools.log_tailer import LogTailerTool
from aeolus_sandbox.tools.terminal import TerminalChunk, TerminalInput, TerminalResult, TerminalTool

Session = StreamingToolSession[TerminalChunk, TerminalResult]
TOOL = TerminalTool(image="local")


@pytest.fixture
async def local() -> AsyncIterator[LocalEngine]:
    async with LocalEngine() as engine:
        yield engine


@pytest.fixture
async def manager(local: LocalEngine) -> AsyncIterator[SessionManager]:
    async with asyncio.timeout(60), SessionManager(engine=local) as opened:
        yield opened
    assert await local.list_containers({}) == []


async def _output(session: Session) -> str:
    return b"".join([chunk.data async for chunk in session]).decode("utf-8", "replace")


async def _until(session: Session, text: str) -> str:
    found = ""
    while text not in found:
        chunk = await session.next_chunk()
        assert chunk is not None, f"the output ended before {text!r}: {found!r}"
        found += chunk.text
    return found


async def _wait_empty(local: LocalEngine) -> None:
    async with asyncio.timeout(10):
        while await local.list_containers({}):  # noqa: ASYNC110 - an engine has no event for it
            await asyncio.sleep(0.005)


# What comes out, and how it ends.


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_a_command_runs_and_its_end_is_known(manager: SessionManager, tty: bool) -> None:
    asked = TerminalInput(
        command="pwd; cat a/f; echo $WHO; echo err >&2; exit 7",
        tty=tty,
        env={"WHO": "me"},
        files={"a/f": b"file\n"},
    )
    async with await manager.open(TOOL, asked) as session:
        output = await _output(session)
        result = await session.finalize()
    assert "/workspace" in output
    assert "file" in output
    assert "me" in output
    assert "err" in output
    assert (result.exit_code, str(result.status)) == (7, "exited with code 7")
    assert result.stderr_bytes == (0 if tty else 4)
    assert "err" in result.output


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_characters_that_are_cut_in_two_arrive_whole(manager: SessionManager, tty: bool) -> None:
    command = r"printf 'caf\303'; sleep 0.1; printf '\251 \360\237'; sleep 0.1; printf '\230\200\n'; printf 'x\376y\n\303'"
    async with await manager.open(TOOL, TerminalInput(command=command, tty=tty)) as session:
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
    text = "".join(chunk.text for chunk in chunks).replace("\r\n", "\n")
    assert text == "café 😀\nx\ufffdy\n\ufffd"
    assert (
        b"".join(chunk.data for chunk in chunks).replace(b"\r\n", b"\n")
        == b"caf\xc3\xa9 \xf0\x9f\x98\x80\nx\xfey\n\xc3"
    )
    assert result.invalid_bytes == 2


async def test_input_goes_in_and_ends(manager: SessionManager) -> None:
    async with await manager.open(TOOL, TerminalInput(command="cat; echo fin", tty=False)) as session:
        await session.send_stdin(Text("héllo\n"))
        await session.send_stdin(Bytes(b"\x00\xff"))
        await session.send_stdin(EndOfInput())
        assert b"".join([chunk.data async for chunk in session]) == "héllo\n".encode() + b"\x00\xfffin\n"
        with pytest.raises(SessionClosed):
            await session.send_stdin(Text("late"))


async def test_the_end_of_input_on_a_terminal_passes_a_partial_line(manager: SessionManager) -> None:
    for sent in ("", "abc", "abc\n"):
        async with await manager.open(TOOL, TerminalInput(command="cat; exit 3")) as session:
            await session.send_stdin(Text(sent))
            await session.send_stdin(EndOfInput())
            assert (await session.finalize()).exit_code == 3


async def test_signals_and_sizes_reach_what_is_in_front(manager: SessionManager) -> None:
    command = "set -m; trap : INT; trap 'stty size' WINCH; stty size; sleep 30; echo rc=$?; sleep 30; echo rc=$?; exit 4"
    async with await manager.open(TOOL, TerminalInput(command=command, cols=120, rows=40)) as session:
        await _until(session, "40 120")
        await asyncio.sleep(0.2)  # until `sleep` is in front: nothing says so
        await session.send_stdin(Signal(UnixSignal.SIGINT))
        await _until(session, "rc=130")
        await session.send_stdin(Resize(cols=200, rows=50))
        await asyncio.sleep(0.2)
        await session.send_stdin(Signal(UnixSignal.SIGTERM))
        await _until(session, "rc=143")
        assert (await session.finalize()).exit_code == 4


async def test_a_background_child_holds_nothing_up(manager: SessionManager) -> None:
    asked = TerminalInput(command="(sleep 20; echo too-late) & echo done; exit 5", tty=False)
    async with asyncio.timeout(5), await manager.open(TOOL, asked) as session:
        assert await _output(session) == "done\n"
        assert (await session.finalize()).exit_code == 5


async def test_a_time_limit_kills_everything(manager: SessionManager, local: LocalEngine) -> None:
    asked = TerminalInput(command="trap '' TERM INT HUP; echo here; sleep 60 & sleep 60", timeout_s=0.3)
    async with asyncio.timeout(10), await manager.open(TOOL, asked) as session:
        result = await session.finalize()
        assert (result.status.reason, result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
        assert "here" in await _output(session)
    await _wait_empty(local)


async def test_a_flood_ends_a_run_that_must_lose_nothing_and_not_one_that_may(
    manager: SessionManager,
) -> None:
    limits = Limits.model_validate({"output_bytes": 100_000})
    flood = TerminalInput(command="yes | head -c 1000000; echo fin", tty=False)
    async with await manager.open(TOOL, flood, limits=limits, policy=Buffer()) as session:
        result = await session.finalize()
        assert (result.status.reason, result.status.limit_hit) == ("output_limit", LimitName.OUTPUT_BYTES)
        assert 0 < len(await _output(session)) <= 100_000
    async with await manager.open(TOOL, flood, limits=limits) as session:
        assert (await session.finalize()).status.ok
        chunks = [chunk async for chunk in session]
        assert chunks[-1].text.endswith("fin\n")
        assert sum(len(chunk.data) + chunk.dropped_bytes for chunk in chunks) == 1_000_004


# What is refused, before anything happens.


async def test_what_was_not_granted_is_refused_before_any_io(local: LocalEngine) -> None:
    local.lose_connection()  # from here on every call fails
    manager = SessionManager(engine=local, grants=Grants())
    with pytest.raises(CapabilityDenied, match="'terminal' requires the capability 'run_commands'"):
        await manager.open(TOOL, TerminalInput(command="true"))
    await manager.aclose()
    assert local.launches == 0


async def test_grants_of_a_call_narrow_and_never_widen(local: LocalEngine) -> None:
    async with SessionManager(engine=local) as manager:
        with pytest.raises(CapabilityDenied):
            await manager.open(TOOL, TerminalInput(command="true"), grants=Grants.of(CapabilityKind.RUN_CODE))
    everything = Grants.of(*CapabilityKind)
    async with SessionManager(engine=local, grants=Grants()) as manager:
        with pytest.raises(CapabilityDenied):
            await manager.open(TOOL, TerminalInput(command="true"), grants=everything)
    assert local.launches == 0


async def test_a_wider_limit_is_refused_before_any_io(manager: SessionManager, local: LocalEngine) -> None:
    with pytest.raises(ConfigurationError, match="wall_time_s"):
        await manager.open(TOOL, TerminalInput(command="true"), limits=Limits(wall_time_s=1000))
    assert local.launches == 0


async def test_limits_of_a_call_narrow_the_managers(manager: SessionManager) -> None:
    asked = TerminalInput(command="true", timeout_s=7)
    async with await manager.open(TOOL, asked, limits=Limits(pids=16, wall_time_s=9)) as session:
        assert (session.limits.pids, session.limits.wall_time_s) == (16, 7)


@pytest.mark.parametrize(
    "fields",
    [{"command": ("printf", "a\0b")}, {"command": "x", "env": {"a b": ""}}, {"command": "x", "cwd": "/\0"},
     {"command": "x", "files": {"../x": b""}}, {"command": "rm -rf /"}],
)  # fmt: skip
async def test_an_input_that_cannot_be_is_refused_and_nothing_is_left(
    manager: SessionManager, local: LocalEngine, fields: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError):
        await manager.open(TOOL, TerminalInput.model_validate(fields))
    assert manager.open_sessions == []
    await _wait_empty(local)


async def test_no_more_sessions_than_allowed_are_open_at_once(local: LocalEngine) -> None:
    async with asyncio.timeout(20), SessionManager(engine=local, max_sessions=3) as manager:
        sessions: list[Session] = []
        refused = 0

        async def open_one() -> None:
            nonlocal refused
            try:
                sessions.append(await manager.open(TOOL, TerminalInput(command="exec sleep 60")))
            except QuotaExceeded:
                refused += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(open_one())
        assert (len(sessions), refused) == (3, 7)
        await sessions[0].aclose()
        await open_one()
        assert (len(sessions), refused) == (4, 7)
    assert await local.list_containers({}) == []


async def test_a_failed_launch_frees_its_place(local: LocalEngine) -> None:
    async with SessionManager(engine=local, max_sessions=1) as manager:
        for error in (EngineUnavailable("gone"), ImageNotFound("missing"), LaunchFailed("refused")):
            local.fail_next("launch", error)
            with pytest.raises(type(error)) as raised:
                await manager.open(TOOL, TerminalInput(command="true"))
            assert raised.value is error
        async with await manager.open(TOOL, TerminalInput(command="true")) as session:
            assert (await session.finalize()).status.ok


# Nothing is left.


async def test_an_open_that_is_cancelled_anywhere_leaves_nothing(local: LocalEngine) -> None:
    chance, opened, within_s = random.Random(4), 0, 0.025  # follows the machine: some opens end, some do not
    files_before = len(list(Path("/proc/self/fd").iterdir()))
    async with asyncio.timeout(300), SessionManager(engine=local) as manager:
        for number in range(200):
            asked = TerminalInput(command="exec sleep 60", tty=number % 2 == 0)
            try:
                async with asyncio.timeout(chance.random() * within_s):
                    await manager.open(TOOL, asked)
            except TimeoutError:
                within_s *= 1.1
                continue
            opened += 1
            within_s /= 1.2
            await manager.open_sessions[0].aclose()
        assert 0 < opened < 200
        await _wait_empty(local)
        assert manager.open_sessions == []
    assert await local.living_processes() == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= files_before


async def test_closing_ends_every_session_and_refuses_new_ones(local: LocalEngine) -> None:
    manager = SessionManager(engine=local)
    sessions = [await manager.open(TOOL, TerminalInput(command="exec sleep 60")) for _ in range(3)]
    assert len(manager.open_sessions) == 3
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        readings = [group.create_task(session.next_chunk()) for session in sessions]
        await asyncio.sleep(0)
        for _ in range(3):
            group.create_task(manager.aclose())
    assert [reading.result() for reading in readings] == [None] * 3
    assert [str((await session.finalize()).status) for session in sessions] == ["cancelled with code 137"] * 3
    assert await local.list_containers({}) == []
    with pytest.raises(SessionClosed):
        await manager.open(TOOL, TerminalInput(command="true"))


async def test_closing_during_an_open_leaves_nothing(local: LocalEngine) -> None:
    for number in range(20):
        manager = SessionManager(engine=local)
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            opening = group.create_task(_open_or_refusal(manager))
            await asyncio.sleep(number * 0.001)
            await manager.aclose()
            await opening
        assert await local.list_containers({OWNER_LABEL: manager.owner}) == []


async def _open_or_refusal(manager: SessionManager) -> None:
    with suppress(SessionClosed, LaunchFailed):
        await manager.open(TOOL, TerminalInput(command="exec sleep 60"))


async def test_a_removal_that_fails_is_tried_again_at_the_end(local: LocalEngine) -> None:
    async with asyncio.timeout(10), SessionManager(engine=local) as manager:
        session = await manager.open(TOOL, TerminalInput(command="exec sleep 60"))
        local.fail_next("remove_container", EngineError("not now"))
        await session.aclose()
        assert len(await local.list_containers({})) == 1
    assert await local.list_containers({}) == []


async def test_a_removal_that_never_works_is_said_at_the_end(local: LocalEngine) -> None:
    manager = SessionManager(engine=local)
    await manager.open(TOOL, TerminalInput(command="exec sleep 60"))
    local.fail_next("remove_container", EngineError("never"), times=50)
    with pytest.raises(EngineError):
        async with asyncio.timeout(10):
            await manager.aclose()


async def test_a_lost_connection_is_never_a_success(local: LocalEngine) -> None:
    manager = SessionManager(engine=local)
    for tty in (False, True):
        async with asyncio.timeout(20):
            session = await manager.open(TOOL, TerminalInput(command="echo begun; sleep 60", tty=tty))
            await _until(session, "begun")
            local.lose_connection()
            with pytest.raises(SessionBroken, match="connection"):
                await _output(session)
            with pytest.raises(SessionBroken):
                await session.finalize()
            assert str(session.status) == "lost"
            local.restore_connection()
    await manager.aclose()
    assert await local.list_containers({}) == []


async def test_a_container_that_is_killed_from_outside_is_reported_as_that(
    manager: SessionManager, local: LocalEngine
) -> None:
    session = await manager.open(TOOL, TerminalInput(command="exec sleep 60"))
    (container,) = await local.list_containers({})
    await local.remove_container(container.id)
    async with asyncio.timeout(20):
        try:
            assert (await session.finalize()).status.reason == "killed"
        except SessionBroken:
            assert str(session.status) == "lost"


# Images that cannot be parked.


def _programs(folder: Path, *names: str) -> str:
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return str(folder)


async def test_an_image_without_a_shell_runs_a_program_directly(
    manager: SessionManager, local: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _programs(tmp_path, "echo", "cat"))
    for tty in (False, True, False):
        async with await manager.open(TOOL, TerminalInput(command=("echo", "hello"), tty=tty)) as session:
            assert (await _output(session)).strip() == "hello"
            assert (await session.finalize()).status.ok
    assert local.launches == 5  # each kind is tried once
    with pytest.raises(ShellMissing, match="no `sh`"):
        await manager.open(TOOL, TerminalInput(command="echo hello"))
    with pytest.raises(ShellMissing):
        await manager.open(TOOL, TerminalInput(command=("cat", "f"), files={"f": b""}))


async def test_an_image_without_stty_parks_on_pipes_only(
    manager: SessionManager, local: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", _programs(tmp_path, "sh", "echo", "sleep"))
    async with await manager.open(TOOL, TerminalInput(command="echo hello", tty=False)) as session:
        assert await _output(session) == "hello\n"
    async with await manager.open(TOOL, TerminalInput(command=("echo", "hello"), tty=True)) as session:
        assert await _output(session) == "hello\r\n"


# Tools that have no container.


class _Empty(BaseModel):
    pass


class _Chunk(OutputChunk):
    pass


class _InProcess(StreamingTool[_Empty, _Chunk, _Empty]):
    name = "in_process"
    description = "Asks for a container that it may not have."
    Input = _Empty
    OutputChunk = _Chunk
    Final = _Empty

    async def start(self, tool_input: _Empty, context: ToolContext) -> StreamingToolHandle[_Chunk, _Empty]:
        await context.park(SandboxProfile(image="local"))
        raise AssertionError


@pytest.mark.parametrize("kind", [TerminalTool, CodeInterpreterTool, LogTailerTool])
def test_a_tool_for_untrusted_code_never_runs_in_process(
    kind: type[TerminalTool | CodeInterpreterTool | LogTailerTool],
) -> None:
    with pytest.raises(ConfigurationError, match="in containers only"):
        kind(isolation=IsolationMode.IN_PROCESS)
    assert kind().isolation is IsolationMode.CONTAINER
    assert kind(isolation=IsolationMode.GVISOR).isolation is IsolationMode.GVISOR


async def test_an_engine_without_gvisor_runs_nothing_in_its_place(
    manager: SessionManager, local: LocalEngine
) -> None:
    tool = TerminalTool(image="local", isolation=IsolationMode.GVISOR)
    with pytest.raises(RuntimeMissing, match="runsc") as raised:
        await manager.open(tool, TerminalInput(command="true"))
    assert (raised.value.code, raised.value.retryable) == ("runtime_missing", False)
    assert await local.list_containers({}) == []


async def test_a_tool_in_process_gets_no_container(manager: SessionManager, local: LocalEngine) -> None:
    assert _InProcess.isolation is IsolationMode.IN_PROCESS
    with pytest.raises(ConfigurationError, match="in_process"):
        await manager.open(_InProcess(), _Empty())
    assert local.launches == 0
