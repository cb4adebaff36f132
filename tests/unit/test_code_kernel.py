"""The host's side of a kernel against a guest that says anything: hostile bytes, wrong frames, silence."""

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from aeolus_sandbox import (
    ConfigurationError,
    ExitStatus,
    GuestProtocolError,
    LimitName,
    Limits,
    SessionBroken,
)
from aeolus_sandbox.guest import frames
from aeolus_sandbox.limits import MIB
from aeolus_sandbox.streaming.source_file import SourceFile
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.code_interpreter.workspace import write_files
from tests.unit.scripted_guest import (
    PATIENCE_S,
    PROFILE,
    READY,
    ScriptedProcess,
    new_cell,
    read_all,
    text,
)


async def read_until_broken(cell: Cell) -> list[str]:
    """Return what came before the guest broke the protocol, which it must."""
    seen: list[str] = []

    async def read() -> None:
        async for chunk in cell.chunks():
            seen.append(chunk.content)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(GuestProtocolError, match="the guest broke the protocol"):
        async with asyncio.timeout(PATIENCE_S):
            await read()
    return seen


# Hostile bytes.

DEEP: Final = 100_000
HOSTILE_LINES: Final = {
    "garbage": b"\x00\xff\x1b[31m garbage",
    "not an object": b"[1, 2]",
    "empty": b"",
    "half a frame": b'{"frame":"done","op":1,"sta',
    "two frames": b'{"frame":"done","op":1,"status":"ok"}{"frame":"done","op":1,"status":"ok"}',
    "unknown kind": b'{"frame":"please","op":1}',
    "no kind": b'{"op":1}',
    "a request": frames.encode_frame(frames.Execute(op=1, code="x")).strip(),
    "negative op": b'{"frame":"done","op":-1,"status":"ok"}',
    "fractional op": b'{"frame":"done","op":1.5,"status":"ok"}',
    "text op": b'{"frame":"done","op":"1","status":"ok"}',
    "huge op": b'{"frame":"done","op":' + b"9" * 5000 + b',"status":"ok"}',
    "no op": b'{"frame":"done","status":"ok"}',
    "status of a wrong type": b'{"frame":"done","op":1,"status":{}}',
    "signal out of range": b'{"frame":"kernel_died","op":1,"signal":1000}',
    "exit code out of range": b'{"frame":"kernel_died","op":1,"exit_code":-5}',
    "invalid UTF-8": b'{"frame":"stream","op":1,"name":"stdout","text":"\xff"}',
    "lone surrogate": b'{"frame":"stream","op":1,"name":"stdout","text":"\\ud800"}',
    "bundle that is a list": b'{"frame":"display","op":1,"data":[1],"metadata":{}}',
    "bundle entry with invalid UTF-8": b'{"frame":"result","op":1,"data":{"text/plain":"\xff"},"metadata":{}}',
    "traceback that is a number": b'{"frame":"error","op":1,"name":"n","value":"v","traceback":5}',
    "traceback of objects": b'{"frame":"error","op":1,"name":"n","value":"v","traceback":[{}]}',
    "nested lists": b'{"frame":"display","op":1,"data":{"a/b":'
    + b"[" * DEEP
    + b"]" * DEEP
    + b'},"metadata":{}}',
    "open lists": b'{"frame":"display","op":1,"data":' + b"[" * DEEP,
    "nested objects": b'{"frame":"display","op":1,"data":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "long text": b'{"frame":"stream","op":1,"name":"stdout","text":"' + b"x" * 70_000 + b'"}',
    "long message": b'{"frame":"done","op":1,"status":"refused","message":"' + b"x" * 70_000 + b'"}',
    "prompt that is no text": b'{"frame":"input_request","op":1,"prompt":{}}',
    "long prompt": b'{"frame":"input_request","op":1,"prompt":"' + b"x" * 70_000 + b'"}',
    "metadata that is a list": b'{"frame":"result","op":1,"data":{"a/b":"c"},"metadata":[1]}',
    "open metadata": b'{"frame":"result","op":1,"data":{"a/b":"c"},"metadata":' + b"[" * DEEP + b"}",
    "sizes that are texts": b'{"frame":"display","op":1,"data":{"a/b":"c"},"omitted":{"a/b":"1"}}',
    "long words": b'{"frame":"kernel_died","op":1,"stderr_tail":"' + b"x" * 70_000 + b'"}',
}


@pytest.mark.parametrize("line", HOSTILE_LINES.values(), ids=HOSTILE_LINES)
async def test_what_no_guest_of_ours_sends_ends_the_conversation(
    process: ScriptedProcess, kernel: Kernel, cell: Cell, line: bytes
) -> None:
    process.say(text(1, "before"))
    process.write_out(line + b"\n" + frames.encode_frame(frames.Done(op=1, status="ok")))
    assert await read_until_broken(cell) == ["before"]
    assert not kernel.is_usable
    reads = process.reads
    with pytest.raises(GuestProtocolError):
        await kernel.next_reply()
    assert process.reads == reads  # nothing of it is read any more


async def test_good_frames_before_a_bad_one_in_the_same_piece_are_given(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.write_out(frames.encode_frame(text(1, "good")) + b"bad\n")
    assert await read_until_broken(cell) == ["good"]


async def test_line_without_an_end_is_refused_at_the_limit(
    process: ScriptedProcess, kernel: Kernel, cell: Cell
) -> None:
    piece = b"x" * MIB
    for _ in range(frames.MAX_FRAME_BYTES // MIB + 1):
        process.write_out(piece)
    with pytest.raises(GuestProtocolError, match="over the limit"):
        await read_all(cell)
    assert not kernel.is_usable


BOMB_BYTES: Final = 24 * MIB
BOMBS: Final[dict[str, tuple[bytes, bytes, bytes]]] = {
    "lists in an entry": (b'{"frame":"display","op":1,"data":{"a/b":[', b"[],", b"1]}}"),
    "objects in a known type": (b'{"frame":"display","op":1,"data":{"application/json":[', b"{},", b"1]}}"),
    "entries": (b'{"frame":"result","op":1,"data":{', b'"a/b":0,', b'"c/d":1}}'),
    "lines of an entry": (b'{"frame":"result","op":1,"data":{"text/html":[', b'"a",', b'"b"]}}'),
    "metadata": (b'{"frame":"result","op":1,"data":{},"metadata":{', b'"a":[],', b'"c":1}}'),
    "left out": (b'{"frame":"display","op":1,"data":{"a/b":"c"},"omitted":{', b'"a/b":0,', b'"c/d":1}}'),
    "fields that no frame has": (b'{"frame":"done","op":9,"status":"ok","x":[', b"[],", b"1]}"),
    "traceback": (b'{"frame":"error","op":1,"name":"n","value":"v","traceback":[', b'"a",', b'"b"]}'),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_a_frame_costs_no_more_memory_than_its_length(
    process: ScriptedProcess, cell: Cell, bomb: tuple[bytes, bytes, bytes]
) -> None:
    head, body, tail = bomb
    line = head + body * ((BOMB_BYTES - len(head) - len(tail)) // len(body)) + tail + b"\n"
    process.write_out(line)
    process.say(frames.Done(op=1, status="ok"))
    tracemalloc.start()
    try:
        await read_all(cell)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5 * len(line)  # as objects it would be up to 25 times as much


async def test_a_million_tiny_frames_starve_nobody(process: ScriptedProcess, cell: Cell) -> None:
    pieces, lines = 100, 10_000
    flood = b'{"frame":"done","op":9,"status":""}\n' * lines
    for _ in range(pieces):
        process.write_out(flood)
    process.say(frames.Done(op=1, status="ok"))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        other = group.create_task(others())
        await read_all(cell)
        other.cancel()
    assert turns > pieces * lines // 300


async def test_frames_of_other_operations_are_marked_and_end_nothing(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.say(
        text(7, "late"),
        frames.Done(op=7, status="error"),
        frames.Error(op=7, name="E", value="v", traceback=[]),
        frames.Result(op=0, data={"text/plain": "5"}, metadata={}),
        READY,
        text(1, "own"),
        frames.Done(op=1, status="ok"),
    )
    chunks = await read_all(cell)
    assert [(chunk.content, chunk.background) for chunk in chunks] == [
        ("late", True),
        ("E: v", True),
        ("5", True),
        ("own", False),
    ]
    result = await cell.result()
    assert (result.success, result.error, result.result) == (True, None, None)


# Guests that fail.


async def test_other_protocol_version_is_named_with_what_to_do(process: ScriptedProcess) -> None:
    kernel = Kernel(process, PROFILE, Limits())
    process.say(msgspec.structs.replace(READY, protocol=99))
    with pytest.raises(GuestProtocolError, match=r"protocol 99.*rebuild its image"):
        await kernel.wait_ready()
    assert not kernel.is_usable


async def test_output_that_ends_in_mid_frame_is_the_containers_end(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    cell = await new_cell(kernel)
    process.write_out(b"words on stderr\n", "stderr")
    process.write_out(b'{"frame":"done","op":1,"sta')
    process.end(ExitStatus(reason="killed", code=137))
    chunks = await read_all(cell)
    assert [chunk.stream for chunk in chunks] == ["error"]
    result = await cell.result()
    assert result.error is not None
    assert result.error.name == "KernelDied"
    assert (result.status.reason, result.success) == ("killed", False)
    assert not kernel.is_usable


async def test_container_that_ends_cleanly_in_mid_cell_is_no_success(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.end(ExitStatus(reason="exited", code=0))
    await read_all(cell)
    assert not (await cell.result()).success


async def test_container_out_of_memory_is_told_with_the_limit(process: ScriptedProcess, cell: Cell) -> None:
    process.end(ExitStatus(reason="out_of_memory", code=137, limit_hit=LimitName.MEMORY))
    [chunk] = await read_all(cell)
    assert "limit 256 MiB" in chunk.content
    assert (await cell.result()).status.limit_hit is LimitName.MEMORY


async def test_lost_engine_is_an_error_and_no_data(process: ScriptedProcess, cell: Cell) -> None:
    process.lost = True
    with pytest.raises(SessionBroken, match="the engine went away"):
        await read_all(cell)


async def test_container_that_ends_before_it_is_ready_is_broken_with_its_words(
    process: ScriptedProcess,
) -> None:
    kernel = Kernel(process, PROFILE, Limits())
    process.write_out(b"x" * 100_000 + b"no such module", "stderr")
    process.end(ExitStatus(reason="exited", code=1))
    with pytest.raises(SessionBroken, match=r"exited with code 1.*no such module") as caught:
        await kernel.wait_ready()
    assert len(str(caught.value)) < 5000


async def test_fault_of_the_guest_is_broken_with_its_message(
    process: ScriptedProcess, kernel: Kernel, cell: Cell
) -> None:
    process.say(frames.Fault(message="3 kernels in a row ended"))
    with pytest.raises(SessionBroken, match="3 kernels in a row"):
        await read_all(cell)
    assert not kernel.is_usable


# Guests that were left alone.


def answers_pings(
    process: ScriptedProcess, *before: frames.Frame, then: tuple[frames.Frame, ...] = ()
) -> None:
    """Make the guest answer pings, with other frames around the answer."""

    def answer(request: frames.Request) -> None:
        if isinstance(request, frames.Ping):
            process.say(*before, frames.Done(op=request.op, status="ok"), *then)

    process.on_request = answer


async def test_code_for_a_guest_that_was_left_alone_goes_with_the_question_whether_it_is_there(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    answers_pings(process)
    assert await kernel.wait_usable()
    assert process.writes == 0
    op = await kernel.execute("code")
    assert [type(request) for request in process.requests] == [frames.Ping, frames.Execute]
    assert (process.requests[1].op, process.writes) == (op, 1)  # type: ignore[union-attr]
    await kernel.execute("more")  # nobody has left it alone since
    assert [type(request) for request in process.requests[2:]] == [frames.Execute]


LOSSES: Final[dict[str, Callable[[ScriptedProcess], None]]] = {
    "ended": lambda process: process.end(ExitStatus(reason="killed", code=137)),
    "takes no input": lambda process: setattr(process, "stdin_closed", True),
    "reads nothing": lambda process: process.takes_input.clear(),
    "says nothing": lambda process: None,
    "engine away": lambda process: setattr(process, "lost", True),
    "garbage": lambda process: process.write_out(b"garbage\n"),
    "fault": lambda process: process.say(frames.Fault(message="x")),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("with_code", [True, False])
async def test_guest_that_is_gone_has_not_got_the_code_and_is_given_up(
    process: ScriptedProcess, kernel: Kernel, lose: Callable[[ScriptedProcess], None], *, with_code: bool
) -> None:
    lose(process)
    await kernel.wait_usable()
    async with asyncio.timeout(PATIENCE_S):
        reached = await kernel.execute("code") is not None if with_code else await kernel.reaches()
    assert not reached
    assert not kernel.is_usable
    assert not await kernel.wait_usable()


async def test_answer_to_something_else_does_not_show_that_the_guest_is_there(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(text(0, "late"), frames.Done(op=77, status="ok"), frames.Changes(op=77, files=[]))
    await kernel.wait_usable()
    assert await kernel.execute("code") is None


async def test_what_came_before_the_answer_is_given_to_the_cell_and_so_is_what_came_behind(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    answers_pings(process, text(0, "late"), then=(text(1, "own"), frames.Done(op=1, status="ok")))
    await kernel.wait_usable()
    chunks = await read_all(await new_cell(kernel))
    assert [(chunk.content, chunk.background) for chunk in chunks] == [("late", True), ("own", False)]


async def test_code_for_a_kernel_that_died_between_two_calls_waits_for_the_next_one(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    answers_pings(process, frames.KernelDied(op=0, signal=9))
    await kernel.wait_usable()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        making = group.create_task(new_cell(kernel))
        while len(process.requests) < 2:  # noqa: ASYNC110 - the guest is a script
            await asyncio.sleep(0)
        assert not making.done()
        process.say(READY, text(1, "own"), frames.Done(op=1, status="ok"))
    chunks = await read_all(making.result())
    assert [chunk.stream for chunk in chunks] == ["status", "stdout"]
    assert (await making.result().result()).environment_recreated


async def test_kernel_with_code_that_nobody_waits_for_is_not_used_again(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    await kernel.wait_usable()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        executing = group.create_task(kernel.execute("code"))
        while not process.requests:  # noqa: ASYNC110 - the guest is a script
            await asyncio.sleep(0)
        executing.cancel()
    assert executing.cancelled()
    assert not kernel.is_usable


# Input.


async def test_files_go_in_pieces_and_each_is_confirmed(process: ScriptedProcess, kernel: Kernel) -> None:
    def confirm(request: frames.Request) -> None:
        if isinstance(request, frames.WriteFile) and request.last:
            process.say(text(0, "late"), frames.Done(op=request.op, status="ok"))

    process.on_request = confirm
    content = bytes(range(256)) * 3000
    await write_files(kernel, [SourceFile.of("a", content), SourceFile.of("empty", b"")])
    pieces = [request for request in process.requests if isinstance(request, frames.WriteFile)]
    assert b"".join(piece.data for piece in pieces) == content
    assert [(piece.path, piece.first, piece.last) for piece in pieces] == [
        ("a", True, False),
        ("a", False, False),
        ("a", False, True),
        ("empty", True, True),
    ]


async def test_late_output_while_a_file_is_written_goes_to_the_next_cell(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(text(9, "late"), frames.Done(op=1, status="ok"))
    await write_files(kernel, [SourceFile.of("a", b"x")])
    process.say(text(2, "own"), frames.Done(op=2, status="ok"))
    cell = await new_cell(kernel)
    chunks = await read_all(cell)
    assert [(chunk.content, chunk.background) for chunk in chunks] == [("late", True), ("own", False)]


async def test_flood_while_a_file_is_written_is_cut_and_the_cut_is_told(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    for _ in range(100):
        process.say(text(9, "x" * 60_000))
    process.say(frames.Done(op=1, status="ok"))
    await write_files(kernel, [SourceFile.of("a", b"x")])
    process.say(frames.Done(op=2, status="ok"))
    chunks = await read_all(await new_cell(kernel))
    assert sum(len(chunk.content) for chunk in chunks) < 2 * MIB
    assert [chunk.content for chunk in chunks].count("[output left out]\n") == 1


async def test_refused_file_names_the_file(process: ScriptedProcess, kernel: Kernel) -> None:
    process.say(frames.Done(op=1, status="refused", message="No space left"))
    with pytest.raises(ConfigurationError, match=r"'a/b'.*No space left"):
        await write_files(kernel, [SourceFile.of("a/b", b"x")])
    assert kernel.is_usable


@pytest.mark.parametrize("reads", [True, False])
async def test_guest_that_does_not_take_a_file_is_given_up(
    process: ScriptedProcess, kernel: Kernel, *, reads: bool
) -> None:
    if not reads:
        process.takes_input.clear()
    with pytest.raises(SessionBroken, match=r"0\.2 s"):
        await write_files(kernel, [SourceFile.of("a", b"x")])
    assert not kernel.is_usable


async def test_kernel_whose_input_is_closed_is_not_used_again(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.stdin_closed = True
    with pytest.raises(SessionBroken):
        await kernel.execute("1")
    assert not kernel.is_usable
