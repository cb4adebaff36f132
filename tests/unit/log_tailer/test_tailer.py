"""What the host makes of a log tailer that says what it likes: batches, notices, a result, or a typed error."""

import asyncio
import grp
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from aeolus_sandbox import ExitStatus, GuestProtocolError, LimitName, SessionBroken, Stop
from aeolus_sandbox.capabilities import ReadLogs
from aeolus_sandbox.errors import CheckpointConflict, ConfigurationError, LogPathRefused
from aeolus_sandbox.guest.frames import Fault, encode_frame
from aeolus_sandbox.guest.logs import frames
from aeolus_sandbox.guest.logs.frames import MAX_BATCH_BYTES
from aeolus_sandbox.streaming.chunks import ChunkBatch
from aeolus_sandbox.streaming.tool import StreamingToolHandle, ToolContext
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogFilter,
    LogLevel,
    LogNoticeKind,
    LogResult,
    LogTailerInput,
    LogTailerTool,
    Multiline,
    output,
)
from aeolus_sandbox.tools.log_tailer import tailer as tailer_module
from tests.unit.log_tailer.scripted_tailer import CANCEL, KILLED, OP, ScriptedContext, ScriptedTailer, done
from tests.unit.scripted_guest import PATIENCE_S

TOOL = LogTailerTool()
Handle = StreamingToolHandle[LogChunk, LogResult]


@pytest.fixture
def process() -> Iterator[ScriptedTailer]:
    process = ScriptedTailer()
    yield process
    for handle in process.handles:
        handle.finalize.close()  # where the test did not ask for the result


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "app.log"
    path.touch()
    return path


async def start(
    process: ScriptedTailer, log: Path, *, progress: str | None = None, **settings: Any
) -> Handle:
    context = ScriptedContext(process, log_access=ReadLogs(roots=[str(log.parent)]), progress=progress)
    return await start_in(context, process, log, **settings)


async def start_in(context: ScriptedContext, process: ScriptedTailer, log: Path, **settings: Any) -> Handle:
    handle = await TOOL.start(LogTailerInput(path=str(log), **settings), cast("ToolContext", context))
    process.handles.append(handle)
    return handle


@pytest.fixture
async def handle(process: ScriptedTailer, log: Path) -> Handle:
    return await start(process, log)


async def taken(handle: Handle) -> AsyncIterator[LogChunk]:
    async for item in handle.chunks:
        if isinstance(item, ChunkBatch):
            for chunk in TOOL.codec().decode_batch(item.tag, item.payload, 0):
                yield chunk
        else:
            yield item


async def read_all(handle: Handle) -> list[LogChunk]:
    async with asyncio.timeout(PATIENCE_S):
        return [chunk async for chunk in taken(handle)]


# What the guest is asked for.


async def test_the_guest_is_asked_for_what_the_input_says(process: ScriptedTailer, log: Path) -> None:
    wanted = LogFilter(
        level=LogLevel.WARNING, pattern="a+", exclude="b", since="2024-03-10T09:15:02.120Z", equals={"s": "1"}
    )  # fmt: skip
    await start(
        process, log, follow=True, format="json", filter=wanted, tail=5, multiline=Multiline(start="^x"), timezone="Europe/Berlin",
        max_line_bytes=100, watch="poll",
    )  # fmt: skip
    tail = process.tail
    assert (tail.paths, tail.mounts) == ([frames.TailPath(str(log))], [str(log.parent)])
    assert (tail.follow, tail.format, tail.level, tail.pattern, tail.exclude) == (True, "json", 4, "a+", "b")
    assert (tail.since_us, tail.until_us, tail.equals, tail.tail_lines) == (
        1_710_062_102_120_000,
        None,
        {"s": "1"},
        5,
    )
    assert (tail.join, tail.zone) == (frames.Join(start="^x"), "Europe/Berlin")
    assert (tail.max_line_bytes, tail.uses_events, tail.cursor) == (100, False, [])


async def test_the_container_sees_the_folder_alone_and_has_the_groups_that_were_granted(
    process: ScriptedTailer, log: Path
) -> None:
    access = ReadLogs(roots=[str(log.parent)], groups=[4, grp.getgrgid(7).gr_name, 7])
    context = ScriptedContext(process, log_access=access)
    await start_in(context, process, log)
    [profile] = context.profiles
    assert [(mount.source, mount.target) for mount in profile.mounts] == [
        (str(log.parent), f"/host{log.parent}")
    ]
    assert (profile.groups, profile.argv, profile.tty) == ((4, 7), ("aeolus-log-tailer",), False)


@pytest.mark.parametrize(
    "settings", [{"timezone": "Mars/Olympus"}, {"timezone": "../etc/passwd"}, {"timezone": ""}]
)
async def test_a_zone_that_is_none_is_refused_before_anything_starts(
    process: ScriptedTailer, log: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="time zone"):
        await start(process, log, **settings)
    assert not process.asked


async def test_a_group_that_the_host_does_not_have_is_refused(process: ScriptedTailer, log: Path) -> None:
    access = ReadLogs(roots=[str(log.parent)], groups=["no such group"])
    with pytest.raises(ConfigurationError, match="no group 'no such group'"):
        await start_in(ScriptedContext(process, log_access=access), process, log)


async def test_without_a_granted_root_nothing_starts(process: ScriptedTailer, log: Path) -> None:
    context = ScriptedContext(process)
    with pytest.raises(LogPathRefused):
        await start_in(context, process, log)
    assert not context.profiles


# Opening.


async def test_a_folder_that_was_swapped_before_the_mount_ends_the_container(
    process: ScriptedTailer, log: Path
) -> None:
    process.opens = lambda request: frames.TailOpened(
        op=OP, mounts=[frames.MountIdentity(path, 1, 2) for path in request.mounts]
    )
    with pytest.raises(LogPathRefused, match="replaced"):
        await start(process, log)
    assert process.stops


@pytest.mark.parametrize("first", [done(), frames.Reached(op=OP, position=done().positions[0])])
async def test_a_guest_that_begins_with_anything_else_is_none_of_ours(
    process: ScriptedTailer, log: Path, first: Any
) -> None:
    process.opens = lambda request: first
    with pytest.raises(GuestProtocolError):
        await start(process, log)


async def test_a_container_that_ends_at_once_says_why(process: ScriptedTailer, log: Path) -> None:
    process.write_out(b"no such program", stream="stderr")
    process.end(ExitStatus(reason="exited", code=127))
    process.opens = lambda request: frames.TailOpened(op=OP, mounts=[])
    process.takes_input.set()
    process.write = _swallow  # type: ignore[method-assign]
    with pytest.raises(SessionBroken, match=r"127.*no such program"):
        await start(process, log)


async def _swallow(data: bytes) -> None:
    del data


async def test_a_guest_that_opens_nothing_is_not_waited_for_for_ever(
    process: ScriptedTailer, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer_module, "OPEN_TIMEOUT_S", 0.05)
    process.write = _swallow  # type: ignore[method-assign]
    with pytest.raises(SessionBroken, match="opened nothing"):
        await start(process, log)


# Lines, notices, and the result.


async def test_lines_and_notices_come_in_order_and_are_counted(
    process: ScriptedTailer, handle: Handle
) -> None:
    process.say_lines("/f", "a", "b")
    process.say(
        frames.Notice(op=OP, kind="rotated", text="/f was replaced", path="/f", offset=20, count=1),
        frames.Reached(op=OP, position=frames.FilePosition("/g", 1, 2, 500)),
    )
    process.say_lines("/g", "c")
    process.say(done(notices_left_out=4))
    chunks = await read_all(handle)
    assert [(chunk.sequence, chunk.raw, chunk.file) for chunk in chunks] == [
        (1, "a", "/f"), (2, "b", "/f"), (3, "", "/f"), (4, "c", "/g"),
    ]  # fmt: skip
    assert chunks[2].notice is not None
    assert (chunks[2].notice.kind, chunks[2].message, chunks[2].offset) == (
        LogNoticeKind.ROTATED,
        "/f was replaced",
        20,
    )
    result = await handle.finalize
    assert result.status == ExitStatus(reason="exited", code=0)
    assert (result.lines_read, result.lines_dropped, result.rotations, result.notices_left_out) == (
        7,
        2,
        3,
        4,
    )
    assert [(each.path, each.offset) for each in result.cursor.positions] == [("/f", 70)]
    assert (result.complete, result.resumed) == (True, False)


async def test_a_batch_that_comes_in_any_pieces_is_one_batch(process: ScriptedTailer, handle: Handle) -> None:
    process.say_lines("/f", *(f"line {n}" for n in range(50)))
    whole = b"".join(piece.data for piece in process._pieces)
    process._pieces.clear()
    for at in range(0, len(whole), 7):
        process.write_out(whole[at : at + 7])
    process.say(done())
    assert [chunk.raw for chunk in await read_all(handle)] == [f"line {n}" for n in range(50)]


async def test_the_guest_hears_what_was_taken_and_only_then(process: ScriptedTailer, handle: Handle) -> None:
    sent = [process.say_lines("/f", *("x" * 1000,) * 100) for _ in range(4)]
    assert sum(sent) > frames.WINDOW_BYTES // 2
    batches = handle.chunks
    async with asyncio.timeout(PATIENCE_S):
        await anext(batches)
        await anext(batches)
    assert process.asked[1:] == []  # the second one is not behind the reader yet
    async with asyncio.timeout(PATIENCE_S):
        await anext(batches)
    assert process.asked[1:] == [frames.Room(op=OP, taken_bytes=sum(sent[:2]))]
    process.say(done())
    await read_all(handle)


async def test_progress_is_where_the_reader_is_and_not_the_guest(
    process: ScriptedTailer, handle: Handle
) -> None:
    process.say_lines("/f", *"abcde")
    process.say(done())
    chunks = await read_all(handle)
    assert handle.progress is not None
    texts = [handle.progress.after(chunk) for chunk in chunks]
    assert [LogCursor.model_validate_json(text).positions[0].offset for text in texts] == [10, 20, 30, 40, 50]


async def test_an_earlier_attempt_is_gone_on_with(process: ScriptedTailer, log: Path) -> None:
    progress = '{"positions":[{"path":"/f","device":1,"inode":1,"offset":30,"head_bytes":4,"head_hash":"ab","done":false}]}'
    other = LogCursor.model_validate_json(progress.replace("30", "99"))
    handle = await start(process, log, progress=progress, from_cursor=other)
    assert [position.offset for position in process.tail.cursor] == [30]
    process.say(done())
    await read_all(handle)
    assert (await handle.finalize).resumed


async def test_progress_of_another_version_is_refused(process: ScriptedTailer, log: Path) -> None:
    with pytest.raises(CheckpointConflict, match="new key"):
        await start(process, log, progress='{"place": 3}')


# The end.


@pytest.mark.parametrize("stop", [CANCEL, Stop(reason="timed_out", limit_hit=LimitName.WALL_TIME)])
async def test_a_session_that_is_ended_has_its_whole_result(
    process: ScriptedTailer, handle: Handle, stop: Stop
) -> None:
    process.say_lines("/f", "a")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(handle))
        group.create_task(handle.cancel.cancel(stop))
    result = await handle.finalize
    assert [chunk.raw for chunk in reading.result()] == ["a"]
    assert (result.status.reason, result.status.limit_hit) == (stop.reason, stop.limit_hit)
    assert (result.complete, result.lines_read) == (True, 7)
    assert not process.stops


async def test_a_guest_that_does_not_stop_is_killed_and_what_came_has_a_cursor(
    process: ScriptedTailer, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer_module.Tailer.__init__, "__kwdefaults__", {"stop_grace_s": 0.05})
    handle = await start(process, log)
    process.obeys = False
    process.say_lines("/f", "a", "b")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(handle))
        group.create_task(handle.cancel.cancel(CANCEL))
    result = await handle.finalize
    assert process.stops == [CANCEL]
    assert len(reading.result()) == 2
    assert (result.status.reason, result.complete, result.lines_matched) == ("cancelled", False, 2)
    assert [(each.path, each.offset) for each in result.cursor.positions] == [("/f", 20)]


async def test_a_guest_that_reads_nothing_any_more_is_killed_too(
    process: ScriptedTailer, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailer_module.Tailer.__init__, "__kwdefaults__", {"stop_grace_s": 0.05})
    handle = await start(process, log)
    process.takes_input.clear()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(read_all(handle))
        group.create_task(handle.cancel.cancel(CANCEL))
    assert process.stops == [CANCEL]


async def test_a_container_that_is_gone_breaks_the_session(process: ScriptedTailer, handle: Handle) -> None:
    process.write_out(b"Traceback: why", stream="stderr")
    process.end(KILLED)
    with pytest.raises(SessionBroken, match=r"killed.*why"):
        await read_all(handle)


async def test_a_guest_that_used_up_its_memory_is_data(process: ScriptedTailer, handle: Handle) -> None:
    process.say_lines("/f", "a")
    process.end(ExitStatus(reason="out_of_memory", code=137, limit_hit=LimitName.MEMORY))
    assert len(await read_all(handle)) == 1
    result = await handle.finalize
    assert (result.status.reason, result.status.limit_hit, result.complete) == (
        "out_of_memory",
        LimitName.MEMORY,
        False,
    )


async def test_a_guest_that_failed_breaks_the_session(process: ScriptedTailer, handle: Handle) -> None:
    process.say(Fault(message="OSError: " + "x" * 10_000))
    with pytest.raises(SessionBroken, match="OSError") as failed:
        await read_all(handle)
    assert len(str(failed.value)) < 1000


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        encode_frame(frames.TailOpened(op=OP, mounts=[])),
        encode_frame(frames.Notice(op=OP, kind="surprise", text="x")),
        encode_frame(frames.Notice(op=OP, kind="rotated", text="x" * 70_000)),
        encode_frame(frames.Lines(op=OP, path="/f", count=0, size=1, position=frames.FilePosition("/f", 1, 1, 0))),
        encode_frame(frames.Lines(op=OP, path="/f", count=1001, size=5000, position=frames.FilePosition("/f", 1, 1, 0))),
        encode_frame(frames.Lines(op=OP, path="/f" * 9000, count=1, size=9, position=frames.FilePosition("/f", 1, 1, 0))),
        encode_frame(frames.Lines(op=OP, path="/f", count=1, size=3, position=frames.FilePosition("/f", 1, 1, -1))) + b"[]\n",
        encode_frame(frames.Lines(op=OP, path="/f", count=1, size=8, position=frames.FilePosition("/f", 1, 1, 0))) + b'["x",0]\n',
        encode_frame(frames.Lines(op=OP, path="/f", count=2, size=2, position=frames.FilePosition("/f", 1, 1, 0))) + b"\n\n",
        encode_frame(frames.Reached(op=OP, position=frames.FilePosition("/f", 1, 1, 0, 1, "not hexadecimal"))),
        encode_frame(done(lines_read=-1)),
        encode_frame(done(files=["x" * 9000])),
    ],
    ids=map(str, range(15)),
)  # fmt: skip
async def test_what_no_guest_of_ours_sends_ends_the_session(
    process: ScriptedTailer, handle: Handle, said: bytes
) -> None:
    process.say_lines("/f", "before")
    process.write_out(said)
    seen: list[LogChunk] = []

    async def read() -> None:
        async for chunk in taken(handle):
            seen.append(chunk)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(GuestProtocolError):
        await read()
    assert [chunk.raw for chunk in seen] == ["before"]


async def test_a_batch_that_never_fits_is_not_collected(process: ScriptedTailer, handle: Handle) -> None:
    head = frames.Lines(
        op=OP, path="/f", count=1000, size=MAX_BATCH_BYTES + 1, position=frames.FilePosition("/f", 1, 1, 0)
    )
    process.write_out(encode_frame(head))
    for _ in range(100):
        process.write_out(b'["' + b"x" * 1000 + b'",0,1]\n')
    with pytest.raises(GuestProtocolError):
        await read_all(handle)
    assert process.reads < 60


async def test_a_frame_that_never_ends_is_not_collected(
    process: ScriptedTailer, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_FRAME_BYTES", 10_000)
    for _ in range(100):
        process.write_out(b"x" * 1000)
    with pytest.raises(GuestProtocolError, match="over the limit"):
        await read_all(handle)
    assert process.reads < 60


async def test_a_flood_of_tiny_frames_lets_other_sessions_have_their_turn(
    process: ScriptedTailer, handle: Handle
) -> None:
    reached = encode_frame(frames.Reached(op=OP, position=frames.FilePosition("/f", 1, 1, 5)))
    process.write_out(reached * 5000)
    process.say(done())
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        other = group.create_task(others())
        assert await read_all(handle) == []
        other.cancel()
    assert turns > 1000
