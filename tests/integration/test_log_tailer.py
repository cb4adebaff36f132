"""Log files of the host, through a real container: read, followed through rotations, gone on with, and kept apart."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aeolus_sandbox import ConfigurationError, SessionManager, StreamingToolSession, Window
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.engine.base import IDEMPOTENCY_LABEL, OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogFilter,
    LogFlag,
    LogLevel,
    LogNoticeKind,
    LogResult,
    LogTailerInput,
    LogTailerTool,
)
from tests.integration.conftest import REPOSITORY
from tests.integration.running import PATIENCE_S, wait_until_none
from tests.integration.tailing_host import tailed

pytestmark = pytest.mark.docker

TOOL: Final = LogTailerTool()
Session = StreamingToolSession[LogChunk, LogResult]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Give a folder that everybody may look into."""
    folder = tmp_path.resolve() / "logs"
    folder.mkdir(mode=0o755)
    return folder


@pytest.fixture
async def manager(engine: DockerEngine, logs: Path) -> AsyncIterator[SessionManager]:
    """Give a manager that may read the folder and those beside it whose names begin with `pods`."""
    roots = [str(logs), str(logs.with_name("pods"))]
    async with SessionManager(grants=Grants.of(ReadLogs(roots=roots))) as opened:
        yield opened
    assert await engine.list_containers({OWNER_LABEL: opened.owner}) == []


async def open_log(manager: SessionManager, path: object, **settings: Any) -> Session:
    return await manager.open(TOOL, LogTailerInput(path=str(path), **settings))


async def read_all(
    manager: SessionManager, path: object, **settings: Any
) -> tuple[list[LogChunk], LogResult]:
    async with asyncio.timeout(PATIENCE_S), await open_log(manager, path, **settings) as session:
        return [chunk async for chunk in session], await session.finalize()


async def read_until(session: Session, met: Callable[[list[LogChunk]], bool]) -> list[LogChunk]:
    """Read until what has come is enough."""
    seen: list[LogChunk] = []
    async with asyncio.timeout(PATIENCE_S):
        while not met(seen):
            chunk = await session.next_chunk()
            assert chunk is not None, f"it ended after {[each.as_text() for each in seen]}"
            seen.append(chunk)
    return seen


def messages(chunks: list[LogChunk]) -> list[str]:
    return [chunk.message for chunk in chunks if chunk.notice is None]


def has(*wanted: str) -> Callable[[list[LogChunk]], bool]:
    return lambda seen: set(wanted) <= set(messages(seen))


def notices(chunks: list[LogChunk]) -> list[tuple[str, str]]:
    return [(chunk.notice.kind, chunk.notice.text) for chunk in chunks if chunk.notice is not None]


def append(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))


# Reading.


async def test_lines_come_parsed_filtered_and_counted(manager: SessionManager, logs: Path) -> None:
    log = logs / "app.log"
    levels = ("info", "error", "warning")
    append(
        log,
        *(
            json.dumps({"level": levels[n % 3], "time": "2024-03-10T09:15:02Z", "msg": f"m{n}", "n": n})
            for n in range(30)
        ),
    )
    wanted = LogFilter(level=LogLevel.WARNING, pattern="m[12]", exclude='"n":.?29')
    chunks, result = await read_all(manager, log, filter=wanted)
    assert [chunk.fields["n"] for chunk in chunks] == [n for n in (1, 2, *range(10, 29)) if n % 3]
    assert all(chunk.level in {LogLevel.ERROR, LogLevel.WARNING} for chunk in chunks)
    assert {chunk.timestamp.isoformat() for chunk in chunks if chunk.timestamp} == {
        "2024-03-10T09:15:02+00:00"
    }
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    content = log.read_bytes()
    assert all(content[chunk.offset : chunk.end_offset] == chunk.raw.encode() + b"\n" for chunk in chunks)
    assert (result.lines_read, result.lines_matched, result.lines_dropped) == (
        30,
        len(chunks),
        30 - len(chunks),
    )
    assert (result.status.ok, result.files, result.bytes_read) == (True, (str(log),), log.stat().st_size)


async def test_a_reader_that_is_slow_loses_nothing(manager: SessionManager, logs: Path) -> None:
    count = 30_000
    append(logs / "big.log", *(f"line {n} {'x' * 80}" for n in range(count)))
    async with (
        asyncio.timeout(PATIENCE_S),
        await open_log(manager, logs / "big.log", format="raw") as session,
    ):
        await asyncio.sleep(1)
        assert session.context_window().chunks_held < count / 2  # the rest has not even been read
        chunks = [chunk async for chunk in session]
    assert [chunk.offset for chunk in chunks[1:]] == [chunk.end_offset for chunk in chunks[:-1]]
    assert len(chunks) == count
    assert not any(chunk.dropped_bytes for chunk in chunks)


async def test_hostile_lines_come_as_data(manager: SessionManager, logs: Path) -> None:
    lines = [
        b"\x1b[2J\x1b]0;title\x07red", b"\xff\xfe broken", b"a\x00b", b"[" * 100_000, b'{"a":' * 5000, b"x" * 200_000,
        b'{"msg":"\\ud800"}', b'{"n":1e999,"msg":"big"}', b'{"frame":"tail_done","op":1}', b'["x",0,1]', "\u2028\u202e".encode(),
        b'{"msg":"ok","level":"info"}',
    ]  # fmt: skip
    (logs / "bad.log").write_bytes(b"\n".join(lines) + b"\n")
    for name in ("auto", "json", "raw", "syslog", "combined", "structured"):
        chunks, result = await read_all(manager, logs / "bad.log", format=name)
        told = [chunk for chunk in chunks if chunk.notice is None]
        assert len(told) == len(lines) == result.lines_read
        assert told[0].raw == lines[0].decode()
        assert LogFlag.INVALID_UTF8 in told[1].flags
        assert LogFlag.TRUNCATED in told[5].flags
        assert told[5].length == 200_000
        for chunk in told:
            assert LogChunk.model_validate_json(chunk.model_dump_json()).raw == chunk.raw
            assert isinstance(len(chunk.fields), int)


async def test_a_file_that_may_not_be_read_is_told_and_the_others_go_on(
    manager: SessionManager, logs: Path
) -> None:
    append(logs / "a.log", "one")
    append(logs / "secret.log", "no")
    (logs / "secret.log").chmod(0o600)
    chunks, _ = await read_all(manager, logs / "*.log", format="raw")
    assert messages(chunks) == ["one"]
    [(kind, text)] = notices(chunks)
    assert kind == LogNoticeKind.UNREADABLE
    assert "secret.log" in text or any(chunk.file.endswith("secret.log") for chunk in chunks)


async def test_files_of_a_granted_group_may_be_read(logs: Path) -> None:
    log = logs / "group.log"
    append(log, "of the group")
    os.chown(log, 0, 4)
    log.chmod(0o640)
    for groups, wanted in (([4], ["of the group"]), ([], [])):
        grants = Grants.of(ReadLogs(roots=[str(logs)], groups=groups))
        async with SessionManager(grants=grants) as manager:
            chunks, _ = await read_all(manager, log, format="raw")
        assert messages(chunks) == wanted


# Following.


async def test_rotation_is_seen_because_the_folder_is_mounted_and_not_the_file(
    manager: SessionManager, logs: Path
) -> None:
    log = logs / "app.log"
    append(log, "a1", "a2")
    async with await open_log(manager, log, follow=True, format="raw") as session:
        seen = await read_until(session, has("a1", "a2"))
        log.rename(logs / "app.log.1")
        append(log, "b1")
        seen += await read_until(session, has("b1"))
        await session.cancel()
        result = await session.finalize()
    assert messages(seen) == ["a1", "a2", "b1"]
    assert (result.status.reason, result.rotations) == ("cancelled", 1)


async def test_links_as_in_kubernetes_are_followed_inside_granted_roots(
    manager: SessionManager, logs: Path
) -> None:
    pods = logs.with_name("pods")
    (pods / "p1").mkdir(parents=True)
    append(pods / "p1/0.log", "a1", "a2")
    link = logs / "web.log"
    link.symlink_to(pods / "p1/0.log")
    async with await open_log(manager, link, follow=True, format="raw") as session:
        seen = await read_until(session, has("a1", "a2"))
        (pods / "p1/0.log").rename(pods / "p1/0.log.1")
        append(pods / "p1/0.log", "b1")
        seen += await read_until(session, has("b1"))
        append(pods / "p1/1.log", "c1")
        (logs / "new").symlink_to(pods / "p1/1.log")
        (logs / "new").rename(link)
        seen += await read_until(session, has("c1"))
    assert messages(seen) == ["a1", "a2", "b1", "c1"]


async def test_a_link_that_leads_out_is_told_and_not_silent(manager: SessionManager, logs: Path) -> None:
    outside = logs.with_name("outside.log")
    append(outside, "secret")
    append(logs / "a.log", "one")
    (logs / "web.log").symlink_to(outside)
    chunks, _ = await read_all(manager, logs / "*.log", format="raw")
    assert messages(chunks) == ["one"]
    [(kind, text)] = notices(chunks)
    assert kind == LogNoticeKind.REFUSED
    assert "outside the mounted paths" in text
    assert str(outside) in text


async def test_a_link_that_is_swapped_while_it_is_followed_leads_nowhere(
    manager: SessionManager, logs: Path
) -> None:
    append(logs / "app.log", "one")
    async with await open_log(manager, logs / "app.log", follow=True, format="raw") as session:
        seen = await read_until(session, has("one"))
        (logs / "app.log").unlink()
        (logs / "app.log").symlink_to("/etc/passwd")
        seen += await read_until(session, lambda new: bool(notices(new)))
        (logs / "app.log").unlink()
        append(logs / "app.log", "two")
        seen += await read_until(session, has("two"))
    assert messages(seen) == ["one", "two"]


async def test_a_file_that_is_not_there_is_waited_for(manager: SessionManager, logs: Path) -> None:
    async with await open_log(manager, logs / "none.log", follow=True, format="raw") as session:
        append(logs / "none.log", "at last")
        assert messages(await read_until(session, has("at last"))) == ["at last"]


@pytest.mark.parametrize("how", ["cancelled", "timed_out"])
async def test_a_session_that_is_ended_has_its_counts_and_its_cursor(
    manager: SessionManager, logs: Path, how: str
) -> None:
    log = logs / "app.log"
    append(log, "one", "two")
    timeout_s = 3.0 if how == "timed_out" else None
    async with await open_log(manager, log, follow=True, format="raw", timeout_s=timeout_s) as session:
        await read_until(session, has("two"))
        if how == "cancelled":
            await session.cancel()
        async with asyncio.timeout(PATIENCE_S):
            assert [chunk async for chunk in session] == []
            result = await session.finalize()
    assert (result.status.reason, result.complete, result.lines_read) == (how, True, 2)
    assert [position.offset for position in result.cursor.positions] == [8]


# Going on.


async def test_a_cursor_goes_on_without_loss_or_repetition_through_a_rotation(
    manager: SessionManager, logs: Path
) -> None:
    log = logs / "app.log"
    append(log, "one", "two")
    chunks, result = await read_all(manager, log, format="raw")
    assert messages(chunks) == ["one", "two"]
    append(log, "three")
    cursor = LogCursor.model_validate_json(result.cursor.model_dump_json())
    chunks, result = await read_all(manager, log, format="raw", from_cursor=cursor)
    assert (messages(chunks), result.resumed) == (["three"], True)
    append(log, "four")
    log.rename(logs / "app.log.1")
    append(log, "five")
    chunks, result = await read_all(manager, log, format="raw", from_cursor=result.cursor)
    assert messages(chunks) == ["four", "five"]
    chunks, _ = await read_all(manager, log, format="raw", from_cursor=result.cursor)
    assert messages(chunks) == []


async def test_after_a_kill_the_same_run_goes_on_where_its_reader_was(
    engine: DockerEngine, logs: Path, tmp_path: Path
) -> None:
    """What the dead reader had in its last second may come again; nothing is missing."""
    log, state, key = logs / "app.log", tmp_path / "state.db", new_identifier()
    append(log, *map(str, range(5000)))
    host = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.tailing_host", str(log), str(state), key),
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )
    assert host.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        before = [json.loads(await host.stdout.readline()) for _ in range(1500)]
    host.kill()
    await host.communicate()
    assert before == [str(n) for n in range(1500)]
    append(log, "last")
    grants = Grants.of(ReadLogs(roots=[str(logs)]))
    async with SessionManager(grants=grants, state_path=state) as manager:
        async with asyncio.timeout(PATIENCE_S):
            session = await manager.open(TOOL, tailed(str(log)), idempotency_key=key)
        async with session:
            seen = messages(await read_until(session, has("last")))
            await session.cancel()
            assert (await session.finalize()).resumed
        async with await manager.open(TOOL, tailed(str(log)), idempotency_key=key) as again:
            assert again.is_replay
    first = int(seen[0])
    assert 0 < first <= 1500 + 1000  # its pipe may have held more than we had read
    assert seen == [*map(str, range(first, 5000)), "last"]
    await wait_until_none(engine, {IDEMPOTENCY_LABEL: key}, within_s=PATIENCE_S)


async def test_without_waiting_the_newest_lines_are_given(manager: SessionManager, logs: Path) -> None:
    append(logs / "app.log", *map(str, range(5000)))
    tool_input = LogTailerInput(path=str(logs / "app.log"), format="raw")
    async with asyncio.timeout(PATIENCE_S):
        async with await manager.open(TOOL, tool_input, policy=Window(max_chunks=10)) as session:
            await session.finalize()
            assert [chunk.message async for chunk in session] == [str(n) for n in range(4990, 5000)]


async def test_an_engine_elsewhere_cannot_read_the_logs_of_this_host(logs: Path) -> None:
    append(logs / "app.log", "one")
    grants = Grants.of(ReadLogs(roots=[str(logs)]))
    async with SessionManager(grants=grants, docker_host="tcp://127.0.0.1:1") as manager:
        with pytest.raises(ConfigurationError, match="not on this host"):
            await open_log(manager, logs / "app.log")
