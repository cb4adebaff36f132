"""A run of 100,000 events through all consumers: nothing is lost, and memory stays flat."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from aeolus_sandbox.consumers import (
    ConsoleConsumer,
    MultiConsumer,
    SqliteTraceConsumer,
    TraceConsumer,
    deliver,
)
from aeolus_sandbox.consumers.trace_file import read_trace
from aeolus_sandbox.events import (
    Content,
    Done,
    SessionStarted,
    StreamEvent,
    ToolCallCompleted,
    ToolCallStarted,
    ToolOutput,
    TurnCompleted,
)
from aeolus_sandbox.storage.traces import TraceStore
from tests.unit.consumers.runs_of_events import SESSION, Run

EVENTS = 100_000
TURN = 100
MOST_BYTES = 16 * 1024 * 1024


def long_run() -> Iterator[StreamEvent]:
    """Yield the events of a run that is long: turns of text, and a tool that prints."""
    run = Run()
    yield run.event(SessionStarted, agent="a", model="m/x")
    for turn in range(1, EVENTS // TURN + 1):
        call = {"tool_call_id": f"call-{turn}", "tool_name": "python"}
        for number in range(TURN // 2):
            yield run.event(Content, content=f"word {number} ")
        yield run.event(ToolCallStarted, **call, arguments="{}")
        for number in range(TURN // 2 - 3):
            text = f"line {number} of turn {turn}\n"
            yield run.event(ToolOutput, **call, stream="stdout", text=text, chunk={"text": text})
        yield run.event(ToolCallCompleted, **call, result={"ok": True}, success=True, duration_ms=1.0)
        yield run.event(TurnCompleted, turn=turn, stop_reason="tool_use")
    yield run.event(Done)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_long_run_is_whole_and_takes_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "screen").open("w", encoding="utf-8") as screen:
        multi = (
            MultiConsumer()
            .add(ConsoleConsumer(stream=screen))
            .add(TraceConsumer(tmp_path, SESSION, "compact"))
            .add(SqliteTraceConsumer(tmp_path / "traces.db"))
        )
        count, base, peak = 0, 0, 0
        tracemalloc.start()
        try:
            async with asyncio.timeout(580):
                for event in long_run():
                    await deliver(multi, event)
                    count += 1
                    if count == EVENTS // 10:
                        gc.collect()
                        base = tracemalloc.get_traced_memory()[0]
                        tracemalloc.reset_peak()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak - base < MOST_BYTES
    lines = sum(
        line.last_sequence - line.event.sequence + 1 for line in read_trace(tmp_path / f"{SESSION}.jsonl")
    )
    async with aclosing(TraceStore.at(tmp_path / "traces.db")) as store:
        rows = 0
        async for row in store.rows(SESSION):
            rows += row.last_sequence - row.event.sequence + 1
    assert lines == rows == count
    assert count >= EVENTS
    assert (tmp_path / "screen").read_text("utf-8").count(" of turn ") == EVENTS // TURN * (TURN // 2 - 3)
