"""Every language keeps the same promises; what each keeps is written into docs/languages.md (see conftest.py)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aeolus_sandbox import CodeInterpreterTool, Limits, SessionManager, Text
from aeolus_sandbox.limits import MIB
from tests.conformance.cells import CELLS, LANGUAGES
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code
from tests.integration.running import PATIENCE_S

pytestmark = pytest.mark.docker

FLOOD_BYTES: Final = 100_000_000
ROOM: Final = Limits(output_bytes=256 * MIB)
promise = pytest.mark.promise


@pytest.fixture(scope="module")
async def manager() -> AsyncIterator[SessionManager]:
    async with SessionManager(limits=ROOM) as opened:
        yield opened


def with_cells(*names: str) -> pytest.MarkDecorator:
    """Run a test for each language that has these cells; the others have no such thing, and the matrix says so."""
    having = [
        pytest.param(language, id=language, marks=pytest.mark.xdist_group(f"conformance {language}"))
        for language in LANGUAGES
        if all(name in CELLS[language] for name in names)
    ]
    return pytest.mark.parametrize("language", having)


async def _run(manager: SessionManager, language: str, cell: str, **settings: Any) -> Ran:
    settings.setdefault("session_id", f"conformance-{language}")
    return await run_code(manager, CELLS[language][cell], language=language, **settings)


@promise("printed text comes on stdout, the cell succeeds")
@with_cells("print")
async def test_prints(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "print")
    assert ran.text().strip() == "hello"
    assert ran.text("stderr") == ""
    assert ran.result.success
    assert ran.result.status.code == 0


@promise("stderr is apart")
@with_cells("stderr")
async def test_stderr_is_apart(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "stderr")
    assert "oops" in ran.text("stderr")
    assert "oops" not in ran.text()
    assert ran.result.success


@promise("the last value is the result")
@with_cells("value")
async def test_last_value_is_the_result(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "value")
    assert ran.result.result is not None
    assert ran.result.result.split()[-1] == "42"
    assert len(ran.of("result")) == 1


@promise("an error has a name, a value, and fails the cell")
@with_cells("error")
async def test_error_is_data(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "error")
    assert not ran.result.success
    assert (ran.result.status.reason, ran.result.status.code) == ("exited", 1)
    assert ran.error_name
    assert len(ran.of("error")) == 1
    if language not in {"bash", "wasm"}:  # a code and a trap have no words of the program's
        assert "wrong" in ran.error_value


@promise("what was printed before an error comes first, and nothing after it runs")
@with_cells("middle")
async def test_error_in_the_middle(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "middle")
    assert ran.text().strip() == "before"
    assert not ran.result.success
    streams = [chunk.stream for chunk in ran.chunks]
    assert streams.index("stdout") < streams.index("error")


@promise("Unicode comes through")
@with_cells("unicode")
async def test_unicode_comes_through(manager: SessionManager, language: str) -> None:
    assert "héllo wörld 日本 👩‍🔬" in (await _run(manager, language, "unicode")).text()


@promise("5 MB on one line")
@with_cells("long_line")
async def test_five_megabytes_on_one_line(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "long_line")
    assert ran.text().strip() == "x" * 5_000_000
    assert ran.result.success


@promise("100 MB in all, none lost")
@with_cells("flood")
async def test_hundred_megabytes_come_whole(manager: SessionManager, language: str) -> None:
    counted = 0
    async with await open_code(
        manager, CELLS[language]["flood"], language=language, session_id=f"flood-{language}"
    ) as session:
        async with asyncio.timeout(4 * PATIENCE_S):
            async for chunk in session:
                counted += len(chunk.content)
            result = await session.finalize()
    assert counted == FLOOD_BYTES
    assert result.success


@promise("HTML beside text")
@with_cells("html")
async def test_html_comes_beside_text(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "html")
    [chunk] = [chunk for chunk in ran.chunks if chunk.stream in {"display", "result"}]
    assert "text/html" in {chunk.mime_type, *chunk.alternatives}
    assert "text/plain" in {chunk.mime_type, *chunk.alternatives}


@promise("an image")
@with_cells("image")
async def test_image_is_bytes(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "image")
    [image] = ran.of("image")
    assert image.data.startswith(b"\x89PNG")
    assert ran.result.images == 1


@promise("top-level await")
@with_cells("await")
async def test_top_level_await(manager: SessionManager, language: str) -> None:
    assert (await _run(manager, language, "await")).result.result == "42"


@promise("state between calls")
@with_cells("set", "get")
async def test_state_is_kept_between_calls(manager: SessionManager, language: str) -> None:
    await _run(manager, language, "set")
    ran = await _run(manager, language, "get")
    assert "42" in (ran.result.result or "") + ran.text()
    assert not ran.result.environment_recreated


@promise("two calls at once on one session run in order")
@with_cells("set", "get")
async def test_two_calls_at_once_run_in_order(manager: SessionManager, language: str) -> None:
    name = f"order-{language}"
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_run(manager, language, "set", session_id=name))
        second = group.create_task(_run(manager, language, "get", session_id=name))
    assert first.result().result.success
    ran = second.result()
    assert "42" in (ran.result.result or "") + ran.text()


@promise("restart: the same session, without its state")
@with_cells("set", "get", "print")
async def test_restart_begins_anew(manager: SessionManager, language: str) -> None:
    name = f"restart-{language}"
    await _run(manager, language, "set", session_id=name)
    await manager.kept.restart(CodeInterpreterTool.name, name)
    ran = await _run(manager, language, "get", session_id=name)
    assert "42" not in (ran.result.result or "") + ran.text()
    assert (await _run(manager, language, "print", session_id=name)).text().strip() == "hello"
    assert not ran.result.environment_recreated  # it was asked for


@promise("interrupt while computing")
@with_cells("busy", "set", "get")
async def test_interrupt_while_computing(manager: SessionManager, language: str) -> None:
    await _interrupted(manager, language, "busy")


@promise("interrupt while sleeping")
@with_cells("sleep", "set", "get")
async def test_interrupt_while_sleeping(manager: SessionManager, language: str) -> None:
    await _interrupted(manager, language, "sleep")


MAY_LOSE_STATE: Final = {"javascript", "typescript"}
"""Deno's kernel can end when it is interrupted."""


async def _interrupted(manager: SessionManager, language: str, cell: str) -> None:
    await _run(manager, language, "set", session_id=f"interrupt-{language}")
    async with await open_code(
        manager, CELLS[language][cell], language=language, session_id=f"interrupt-{language}"
    ) as session:
        await read_until(session, "on")
        await session.cancel()
        result = await finish(session)
    assert result.status.reason == "cancelled"
    ran = await _run(manager, language, "get", session_id=f"interrupt-{language}")
    if not (language in MAY_LOSE_STATE and ran.result.environment_recreated):
        assert "42" in (ran.result.result or "") + ran.text()
        assert not ran.result.environment_recreated


@promise("a killed kernel is reported, and the next call says that the state was lost")
@with_cells("kill", "print")
async def test_killed_kernel_is_reported(manager: SessionManager, language: str) -> None:
    ran = await _run(manager, language, "kill", session_id=f"kill-{language}")
    assert ran.error_name == "KernelDied"
    assert "9" in ran.error_value
    after = await _run(manager, language, "print", session_id=f"kill-{language}")
    assert after.text().strip() == "hello"
    assert after.result.environment_recreated


@promise("out of memory is said to be that")
@with_cells("memory", "print")
async def test_out_of_memory_is_reported(manager: SessionManager, language: str) -> None:
    small = Limits(memory_bytes=320 * MIB)
    ran = await _run(manager, language, "memory", session_id=f"memory-{language}", limits=small)
    assert ran.result.status.reason == "out_of_memory"
    after = await _run(manager, language, "print", session_id=f"memory-{language}", limits=small)
    assert after.text().strip() == "hello"
    assert after.result.environment_recreated


@promise("code that ends the kernel is reported, and the next call works")
@with_cells("exit", "print")
async def test_exit_of_the_kernel_is_reported(manager: SessionManager, language: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        ran = await _run(manager, language, "exit", session_id=f"exit-{language}")
    assert ran.result.status.reason == "exited"
    after = await _run(manager, language, "print", session_id=f"exit-{language}")
    assert after.text().strip() == "hello"
    assert after.result.environment_recreated or ran.result.environment_recreated


@promise("input is answered through stdin events, where it is allowed")
@with_cells("input")
async def test_input_is_answered(manager: SessionManager, language: str) -> None:
    async with await open_code(
        manager, CELLS[language]["input"], language=language, allow_stdin=True, session_id=f"input-{language}"
    ) as session:
        await session.send_stdin(Text("Ada\n"))
        text = await read_until(session, "got Ada")
        result = await finish(session)
    assert "got Ada" in text
    assert result.success


@promise("without permission, asking for input does not hang")
@with_cells("input")
async def test_input_that_is_not_allowed_does_not_hang(manager: SessionManager, language: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        ran = await _run(manager, language, "input")
    assert "got Ada" not in ran.text()
    assert (await _run(manager, language, "print")).text().strip() == "hello"
