"""Whenever the host process dies: no container is left, no result is lost, and nothing runs twice that must not."""

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aeolus_sandbox import Approve, Deny, Manual, RunInterrupted, SessionManager, TerminalResult
from aeolus_sandbox.approvers import CallbackApprover
from aeolus_sandbox.engine.base import IDEMPOTENCY_LABEL, OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from tests.integration.breaking_host import STEPS, input_named, tool_named
from tests.integration.conftest import REPOSITORY
from tests.integration.running import PATIENCE_S, wait_until_none

pytestmark = pytest.mark.docker

GONE_WITHIN_S: Final = 30
StartHost = Callable[[str, str], Awaitable[Process]]


@pytest.fixture
def key() -> str:
    return new_identifier()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
async def start_host(state: Path, key: str) -> AsyncIterator[StartHost]:
    """Start a host process with a tool that kills it at a step; see breaking_host.py."""
    started: list[Process] = []

    async def start(tool: str, step: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.breaking_host", tool, step, str(state), key),
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _line(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        line = await process.stdout.readline()
    assert line, "the process ended"
    told: dict[str, Any] = json.loads(line)
    return told


async def _result(process: Process) -> dict[str, Any]:
    while "output" not in (told := await _line(process)):
        pass
    return told


async def _killed(process: Process) -> str:
    """Wait until a host process has killed itself; return the label of its containers."""
    owner = (await _line(process))["owner"]
    async with asyncio.timeout(PATIENCE_S):
        await process.communicate()
    assert process.returncode == -9
    assert isinstance(owner, str)
    return owner


async def _attempts(state: Path, key: str) -> int:
    database = Database(state)
    try:
        checkpoint = await Checkpoints(database).get(key)
    finally:
        await database.aclose()
    assert checkpoint is not None
    return checkpoint.attempts


async def _run_again(tool: Any, name: str, state: Path, key: str) -> tuple[bool, Any]:
    """Open the same run again; return whether its result was stored, and the result."""
    async with (
        asyncio.timeout(PATIENCE_S),
        SessionManager(state_path=state) as manager,
        await manager.open(tool, input_named(name), idempotency_key=key) as session,
    ):
        return session.is_replay, await session.finalize()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["terminal!", "terminal", "code!", "code"])
async def test_host_killed_at_any_step_loses_nothing_and_repeats_nothing(
    engine: DockerEngine, start_host: StartHost, state: Path, key: str, name: str, step: str
) -> None:
    owner = await _killed(await start_host(name, step))
    tool: Any = tool_named(name)
    if step != "before_record" and step != "after_store" and not tool.idempotent:
        for _ in range(2):
            with pytest.raises(RunInterrupted):
                await _run_again(tool, name, state, key)
        assert tool.starts == 0
    else:
        is_replay, result = await _run_again(tool, name, state, key)
        assert result.status.ok
        assert result.output.split() == ["one", "two"]
        assert is_replay == (step == "after_store")
        assert tool.starts == (not is_replay)
        assert await _attempts(state, key) == (1 if step in {"before_record", "after_store"} else 2)
        starts = tool.starts
        assert await _run_again(tool, name, state, key) == (True, result)
        assert tool.starts == starts
    await wait_until_none(engine, {IDEMPOTENCY_LABEL: key}, within_s=GONE_WITHIN_S)
    await wait_until_none(engine, {OWNER_LABEL: owner}, within_s=GONE_WITHIN_S)


async def test_container_of_a_dead_run_is_gone_before_the_run_is_repeated(
    engine: DockerEngine, start_host: StartHost, state: Path, key: str
) -> None:
    host = await start_host("slow!", "never")
    await _line(host)
    assert "one" in (await _line(host))["text"]
    [left] = await engine.list_containers({IDEMPOTENCY_LABEL: key})
    host.kill()
    await host.wait()
    async with SessionManager(state_path=state) as manager:
        opening = manager.open(tool_named("slow!"), input_named("slow"), idempotency_key=key)
        async with asyncio.timeout(PATIENCE_S), await opening as session:
            ids = [container.id for container in await engine.list_containers({IDEMPOTENCY_LABEL: key})]
            assert len(ids) == 1
            assert left.id not in ids
            assert not session.is_replay


async def test_two_processes_with_one_key_run_once_and_both_have_the_result(start_host: StartHost) -> None:
    hosts = [await start_host("slow", "never") for _ in range(2)]
    results = [await _result(host) for host in hosts]
    assert sorted(result["replay"] for result in results) == [False, True]
    assert {result["output"] for result in results} == {"one\ntwo\n"}


async def test_waiting_process_takes_over_when_the_other_dies(
    start_host: StartHost, state: Path, key: str
) -> None:
    first = await start_host("slow!", "never")
    await _line(first)
    assert "one" in (await _line(first))["text"]
    second = await start_host("slow!", "never")
    await _line(second)
    first.kill()
    result = await _result(second)
    assert result == {"replay": False, "output": "one\ntwo\n"}
    assert await _attempts(state, key) == 2


async def test_pending_approval_survives_the_host_and_can_be_decided_after_it(
    start_host: StartHost, state: Path, key: str
) -> None:
    host = await start_host("line!", "pending_approval")
    await _line(host)
    database = Database(state)
    store = ApprovalStore(database)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not (waiting := await store.list()):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.05)
        host.kill()
        await host.wait()
        [pending] = await store.list()
        assert pending == waiting[0]
        assert pending.text.strip() == "one"
        assert await store.decide(pending.id, Approve(by="role:admin"))
    finally:
        await database.aclose()

    def nobody(request: object) -> Deny:
        raise AssertionError(f"asked again: {request}")

    async with SessionManager(state_path=state, approver=CallbackApprover(nobody)) as manager:
        opening = manager.open(tool_named("line!"), input_named("line"), policy=Manual(), idempotency_key=key)
        async with asyncio.timeout(PATIENCE_S), await opening as session:
            assert [chunk.as_text().strip() async for chunk in session] == ["one"]
            result = await session.finalize()
            assert isinstance(result, TerminalResult)
            assert result.exit_code == 0
