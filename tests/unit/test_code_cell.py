"""How a cell ends, by itself or because it must, against a guest that answers as little as it likes."""

import asyncio
from typing import Final

import pytest

from aeolus_sandbox import CodeChunk, LimitName, Stop
from aeolus_sandbox.guest import frames
from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from tests.unit.scripted_guest import (
    PATIENCE_S,
    READY,
    ScriptedProcess,
    new_cell,
    read_all,
    text,
)

CANCEL: Final = Stop(reason="cancelled")
TIMEOUT: Final = Stop(reason="timed_out", limit_hit=LimitName.WALL_TIME)


# How cells end.


@pytest.mark.parametrize(
    ("done", "name", "words"),
    [
        (frames.Done(op=1, status="interrupted"), "KeyboardInterrupt", "interrupted"),
        (frames.Done(op=1, status="aborted"), "NotRun", "was not run"),
        (frames.Done(op=1, status="refused", message="too many"), "ExecutionFailed", "failed: too many"),
        (frames.Done(op=1, status="nonsense"), "ExecutionFailed", "failed"),
    ],
)
async def test_a_cell_that_did_not_succeed_has_an_error_and_a_chunk(
    process: ScriptedProcess, cell: Cell, done: frames.Done, name: str, words: str
) -> None:
    process.say(done)
    [chunk] = await read_all(cell)
    result = await cell.result()
    assert result.error is not None
    assert (chunk.stream, result.error.name, result.success) == ("error", name, False)
    assert words in chunk.content


async def test_error_of_the_code_is_told_once(process: ScriptedProcess, cell: Cell) -> None:
    process.say(
        frames.Error(op=1, name="E", value="v", traceback=["a", "b"]), frames.Done(op=1, status="error")
    )
    [chunk] = await read_all(cell)
    result = await cell.result()
    assert result.error is not None
    assert (chunk.content, result.error.traceback, result.status.code) == ("a\nb", ("a", "b"), 1)


@pytest.mark.parametrize(
    ("died", "reason", "code", "words"),
    [
        (frames.KernelDied(op=1, signal=9), "killed", 137, "killed by signal 9"),
        (frames.KernelDied(op=1, exit_code=7), "exited", 7, "exited with code 7"),
        (frames.KernelDied(op=1, signal=9, out_of_memory=True), "out_of_memory", 137, "limit 256 MiB"),
        (frames.KernelDied(op=1, exit_code=0), "exited", 0, "exited with code 0"),
        (frames.KernelDied(op=1, signal=11, stderr_tail="Segfault"), "killed", 139, "Segfault"),
    ],
)
async def test_death_of_the_kernel_is_told_as_what_it_was(
    process: ScriptedProcess, cell: Cell, died: frames.KernelDied, reason: str, code: int, words: str
) -> None:
    process.say(died)
    [chunk] = await read_all(cell)
    result = await cell.result()
    assert (result.status.reason, result.status.code) == (reason, code)
    assert words in chunk.content
    assert result.error is not None
    assert result.error.name == "KernelDied"
    assert not result.success


async def test_lost_state_is_told_to_the_next_cell_once(process: ScriptedProcess, kernel: Kernel) -> None:
    process.say(frames.KernelDied(op=1, signal=9), READY, frames.Done(op=2, status="ok"))
    told = []
    for _ in range(2):
        cell = await new_cell(kernel)
        await read_all(cell)
        told.append((await cell.result()).environment_recreated)
    process.say(frames.Done(op=3, status="ok"))
    cell = await new_cell(kernel)
    assert await read_all(cell) == []
    assert [*told, (await cell.result()).environment_recreated] == [False, True, False]


async def test_death_of_an_idle_kernel_is_told_in_the_cell_that_comes_next(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.say(frames.KernelDied(op=0, exit_code=1), READY, text(1, "x"), frames.Done(op=1, status="ok"))
    chunks = await read_all(cell)
    assert [chunk.stream for chunk in chunks] == ["status", "stdout"]
    assert (await cell.result()).environment_recreated


# Ending a cell.


def ends_at(process: ScriptedProcess, wanted: type[frames.Request], number: int, reply: frames.Frame) -> None:
    """Make the guest answer the n-th request of a kind, and no other."""

    def answer(request: frames.Request) -> None:
        if [type(made) for made in process.requests].count(wanted) == number and isinstance(request, wanted):
            process.say(reply)

    process.on_request = answer


INTERRUPTED: Final = frames.Done(op=1, status="interrupted")


@pytest.mark.parametrize(
    ("wanted", "number", "reply", "asked"),
    [
        (frames.Interrupt, 1, INTERRUPTED, [frames.Interrupt]),
        (frames.Interrupt, 2, INTERRUPTED, [frames.Interrupt, frames.Interrupt]),
        (
            frames.KillKernel,
            1,
            frames.KernelDied(op=1, signal=9),
            [frames.Interrupt, frames.Interrupt, frames.KillKernel],
        ),
    ],
)
async def test_ending_goes_no_further_than_it_must(
    process: ScriptedProcess,
    kernel: Kernel,
    cell: Cell,
    wanted: type[frames.Request],
    number: int,
    reply: frames.Frame,
    asked: list[type[frames.Request]],
) -> None:
    ends_at(process, wanted, number, reply)
    await stop_while_reading(cell, TIMEOUT)
    assert [type(request) for request in process.requests[1:]] == asked
    assert process.stops == []
    assert kernel.is_usable
    status = (await cell.result()).status
    assert (status.reason, status.limit_hit) == ("timed_out", LimitName.WALL_TIME)


async def stop_while_reading(cell: Cell, stop: Stop) -> list[CodeChunk]:
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        reading = group.create_task(read_all(cell))
        await asyncio.sleep(0)
        await cell.stop(stop)
    return reading.result()


@pytest.mark.parametrize("stop", [TIMEOUT, CANCEL])
async def test_guest_that_answers_nothing_loses_its_container(
    process: ScriptedProcess, kernel: Kernel, cell: Cell, stop: Stop
) -> None:
    assert await stop_while_reading(cell, stop) == []
    assert process.stops == [stop]
    assert not kernel.is_usable
    result = await cell.result()
    assert (result.status.reason, result.success) == (stop.reason, False)


async def test_guest_that_reads_nothing_loses_its_container_in_time(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.takes_input.clear()
    await stop_while_reading(cell, TIMEOUT)
    assert process.stops == [TIMEOUT]


async def test_guest_that_floods_after_the_interrupt_still_loses_its_container(
    process: ScriptedProcess, cell: Cell
) -> None:
    process.on_request = lambda request: process.say(text(1, "flood"))
    chunks = await stop_while_reading(cell, TIMEOUT)
    assert {chunk.content for chunk in chunks} == {"flood"}
    assert process.stops == [TIMEOUT]


async def test_cancelling_a_kernel_that_nobody_keeps_kills_its_container_at_once(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    cell = await new_cell(kernel, keeps_kernel=False)
    await stop_while_reading(cell, CANCEL)
    assert len(process.requests) == 1
    assert process.stops == [CANCEL]
