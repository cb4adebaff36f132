"""Traces when their disk is full, when their process is killed, and when several processes write one file."""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from aeolus_sandbox.consumers import (
    CallbackConsumer,
    MultiConsumer,
    SqliteTraceConsumer,
    TraceConsumer,
    deliver,
)
from aeolus_sandbox.consumers.trace_file import read_trace
from aeolus_sandbox.errors import StorageError
from aeolus_sandbox.events import StreamEvent, TurnCompleted
from aeolus_sandbox.storage.traces import TraceStore
from tests.unit.consumers.runs_of_events import Run, deliver_all

LIMIT_S = 90.0
PROGRAM = Path(__file__).with_name("trace_process.py")
RUN = Run().whole(*[(TurnCompleted, {"turn": 1, "stop_reason": "x"})] * 3)

needs_mounts = pytest.mark.skipif(sys.platform != "linux", reason="mounts a file system of its own")


@asynccontextmanager
async def tracing(
    kind: str, folder: Path, session_id: str, count: int, *wrapper: str
) -> AsyncIterator[Process]:
    root = Path(__file__).parents[3]
    process = await asyncio.create_subprocess_exec(
        *(*wrapper, sys.executable, str(PROGRAM), kind, str(folder), session_id, str(count)),
        stdin=PIPE,
        stdout=PIPE,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()


async def until_half(process: Process) -> None:
    while (said := await line(process)) != "half":
        assert said.startswith("written"), said


async def go_on(process: Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    await process.stdin.drain()


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_failing_trace_does_not_stop_a_run_that_ignores_it(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    seen: list[StreamEvent] = []
    trace: TraceConsumer | SqliteTraceConsumer = TraceConsumer(tmp_path / "file", "s")
    if kind == "sqlite":
        trace = SqliteTraceConsumer(tmp_path / "file" / "traces.db")
    multi = MultiConsumer().add(trace, on_error="ignore").add(CallbackConsumer(seen.append))
    with caplog.at_level(logging.WARNING):
        await deliver_all(multi, RUN)
    assert seen == RUN
    assert multi.failures == 1  # the first failure alone is an error
    assert trace.problems.lost_events == len(RUN)
    assert trace.problems.failures >= 1
    assert len(trace.problems.messages) == 1
    assert sum("is not whole" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
async def test_failing_trace_stops_a_run_that_does_not_ignore_it(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    trace: TraceConsumer | SqliteTraceConsumer = TraceConsumer(tmp_path / "file", "s")
    if kind == "sqlite":
        trace = SqliteTraceConsumer(tmp_path / "file" / "traces.db")
    with pytest.raises(StorageError):
        await deliver_all(trace, RUN)
    await deliver(trace, RUN[-1])  # the run tells of its end: no second error


@needs_mounts
async def test_full_disk_is_counted_and_told_and_the_trace_goes_on_when_there_is_room(tmp_path: Path) -> None:
    namespace = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
    script = (
        'mount -t tmpfs -o size=4m none "$1"; '
        'dd if=/dev/zero of="$1/filler" bs=1k count=4040 2>/dev/null; shift; exec "$@"'
    )
    folder = tmp_path / "full"
    folder.mkdir()
    wrapper = (*namespace, "sh", "-ec", script, "sh", str(folder))
    async with asyncio.timeout(LIMIT_S), tracing("both", folder, "s", 200, *wrapper) as process:
        await until_half(process)
        inside = Path(f"/proc/{process.pid}/root{folder}")  # what the process sees
        (inside / "filler").unlink()
        await go_on(process)
        while (said := await line(process)).startswith("written"):
            pass
        jsonl, sqlite = json.loads(said)
        copy = shutil.copytree(inside, tmp_path / "copy")
    lines = list(read_trace(copy / "s.jsonl"))
    async with aclosing(TraceStore.at(copy / "traces.db")) as store:
        (run,) = await store.runs()  # of the first one nothing could be written
        rows = [row async for row in store.rows("s")]
    assert 0 < jsonl[0] < 202
    assert "no room for the trace" in jsonl[2][0]
    assert sum(line.lost_events for line in lines) == jsonl[0]
    assert len(lines) == 2 * 202 - jsonl[0]
    assert [line.event.sequence for line in lines[-202:]] == list(range(202))
    assert sqlite[0] == 202
    assert "there is no room" in sqlite[2][0]
    assert (run.state, run.lost_events) == ("done", 0)
    assert sum(row.last_sequence - row.event.sequence + 1 for row in rows) == 202


async def test_killed_process_has_lost_nothing_that_the_trace_had_taken(tmp_path: Path) -> None:
    for number in range(5):
        session_id = f"s{number}"
        async with asyncio.timeout(LIMIT_S), tracing("jsonl", tmp_path, session_id, 2_000) as process:
            said = [await line(process) for _ in range(1 + number * 40)]
            process.send_signal(signal.SIGKILL)
            assert process.stdout is not None
            said += (await process.stdout.read()).decode().split("\n")
        taken = [int(each.split()[1]) for each in said if each.startswith("written ") and each.split()[1:]]
        read = [each.event.sequence for each in read_trace(tmp_path / f"{session_id}.jsonl")]
        assert read[: len(taken)] == list(range(len(taken)))
        assert len(read) >= len(taken) - 1  # the last number may itself be cut off


async def test_killed_process_leaves_a_trace_file_that_is_whole(tmp_path: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        for number in range(5):
            async with tracing("sqlite", tmp_path, "s", 2_000) as process:
                for _ in range(30 + number * 11):
                    await line(process)
                process.send_signal(signal.SIGKILL)
        async with aclosing(TraceStore.at(tmp_path / "traces.db")) as store:
            runs = await store.runs_of("s")
            rows = [row async for row in store.rows("s")]
    assert [run.state for run in runs] == ["running"] * 5
    for run in runs:
        places = [(row.event.sequence, row.last_sequence) for row in rows if row.run == run.number]
        assert [first for first, _ in places] == [0, *[last + 1 for _, last in places[:-1]]]
        assert places[-1][1] >= 20  # the turns that had ended


async def test_several_processes_write_one_file(tmp_path: Path) -> None:
    async def run(number: int) -> list[list[int]]:
        async with tracing("sqlite", tmp_path, f"s{number}", 300) as process:
            await until_half(process)
            await go_on(process)
            while (said := await line(process)).startswith("written"):
                pass
            problems: list[list[int]] = json.loads(said)
            await go_on(process)
            return problems

    async with asyncio.timeout(LIMIT_S):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(number)) for number in range(4)]
        assert all(task.result()[1] == [0, 0, []] for task in tasks)
        async with aclosing(TraceStore.at(tmp_path / "traces.db")) as store:
            runs = await store.runs()
            assert sorted(run.session_id for run in runs) == sorted([f"s{each}" for each in range(4)] * 2)
            assert {(run.state, run.rows) for run in runs} == {("done", 62)}
            for number in range(4):
                rows = [row async for row in store.rows(f"s{number}")]
                assert sum(row.last_sequence - row.event.sequence + 1 for row in rows) == 2 * 302
