"""The JSONL trace: every event, exact, safe from crashes and hostile names."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.consumers import TraceConsumer, deliver
from aeolus_sandbox.consumers.trace_file import TraceFile, TraceLine, file_name, format_line, read_trace
from aeolus_sandbox.errors import ConfigurationError, StorageError
from aeolus_sandbox.events import (
    Content,
    Reasoning,
    StreamEvent,
    ToolCallCompleted,
    ToolOutput,
)
from tests.unit.consumers.runs_of_events import SESSION, Run, any_run, deliver_all, others, texts

LIMIT_S = 30.0
HOSTILE = "ok\x1b[2J\x1b]52;c;cm0=\x07\x9b31m\u202egnp\x7f\x00\ud800"


def lines(path: Path | None) -> list[TraceLine]:
    assert path is not None
    return list(read_trace(path))


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@given(any_run())
async def test_detailed_trace_is_the_run(events: list[StreamEvent]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = TraceConsumer(Path(folder), SESSION)
        await deliver_all(trace, events)
        assert [line.event for line in lines(trace.path)] == events
        assert not trace.problems


@given(any_run())
async def test_compact_trace_has_the_same_texts_joined(events: list[StreamEvent]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trace = TraceConsumer(Path(folder), SESSION, "compact")
        await deliver_all(trace, events)
        read = lines(trace.path)
    assert [
        (line.event.type, line.event.content) for line in read if hasattr(line.event, "content")
    ] == texts(events)
    assert others(line.event for line in read) == others(events)
    places = [(line.event.sequence, line.last_sequence) for line in read]
    assert [first for first, _ in places] == [0, *[last + 1 for _, last in places[:-1]]]
    assert places[-1][1] == len(events) - 1


async def test_exact_text_stays_escaped(folder: Path) -> None:
    events = Run().whole((Content, {"content": HOSTILE}))
    for format_ in ("detailed", "compact"):
        trace = TraceConsumer(folder, format_, format_)
        await deliver_all(trace, events)
        assert trace.path is not None
        data = trace.path.read_bytes()
        assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in data)
        assert lines(trace.path)[1].event == events[1]


async def test_times_are_utc_and_monotonic(folder: Path) -> None:
    wall = iter([datetime(2026, 7, 1, 12, tzinfo=UTC) - timedelta(hours=each) for each in range(9)])
    clock = iter([5.0, 5.0, 5.25, 6.0])
    trace = TraceConsumer(folder, SESSION, now=lambda: next(wall), monotonic=lambda: next(clock))
    await deliver_all(trace, Run().whole((Content, {"content": "x"})))
    assert [line.elapsed_ms for line in lines(trace.path)] == [0, 250, 1000]
    assert json.loads((folder / f"{SESSION}.jsonl").read_text().splitlines()[1])["time"] == (
        "2026-07-01T11:00:00.000000+00:00"
    )


async def test_every_line_is_handed_over_when_its_event_was_taken(folder: Path) -> None:
    trace = TraceConsumer(folder, SESSION)
    for number, event in enumerate(Run().whole((Content, {"content": "a"}), (Content, {"content": "b"}))):
        await deliver(trace, event)
        assert len(lines(trace.path)) == number + 1


async def test_compact_text_does_not_wait_for_the_next_event(folder: Path) -> None:
    trace = TraceConsumer(folder, SESSION, "compact", flush_s=0.01)
    run = Run()
    await deliver_all(trace, [run.event(Content, content="a"), run.event(Content, content="b")])
    async with asyncio.timeout(LIMIT_S):
        while not (folder / f"{SESSION}.jsonl").exists():  # noqa: ASYNC110 - a file tells nobody
            await asyncio.sleep(0.01)
        while not (read := lines(trace.path)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert read[0].event.model_dump()["content"] == "ab"
    await trace.aclose()


async def test_long_output_of_tools_is_shortened_and_said(folder: Path) -> None:
    call: dict[str, Any] = {"tool_call_id": "a", "tool_name": "python"}
    long = "x" * 50_000 + "the end"
    events = Run().whole(
        (ToolOutput, call | {"stream": "stdout", "text": long, "chunk": {"text": [long]}}),
        (ToolCallCompleted, call | {"result": {"output": long}, "success": True, "duration_ms": 1.0}),
        (Content, {"content": long}),
    )
    trace = TraceConsumer(folder, SESSION, "compact")
    await deliver_all(trace, events)
    read = lines(trace.path)
    assert [line.left_out_characters > 40_000 for line in read] == [False, True, True, False, False]
    output = read[1].event
    assert isinstance(output, ToolOutput)
    assert output.text.endswith("the end")
    assert "characters left out" in output.text
    assert read[3].event == events[3]
    assert (folder / f"{SESSION}.jsonl").stat().st_size < 65_000


async def test_session_that_goes_on_goes_on_in_its_file(folder: Path) -> None:
    events = Run().whole((Reasoning, {"content": "x"}))
    trace = TraceConsumer(folder, SESSION)
    await deliver_all(trace, events)
    await deliver_all(trace, events)
    await deliver_all(TraceConsumer(folder), events)
    assert [line.event for line in lines(trace.path)] == events * 3


async def test_run_that_was_cut_off_does_not_mix_with_the_next(folder: Path) -> None:
    trace = TraceConsumer(folder, None, "compact")
    one, other = Run("one"), Run("other")
    await deliver_all(trace, one.whole((Content, {"content": "half"}))[:2])
    await deliver_all(trace, other.whole((Content, {"content": "whole"})))
    assert [line.event.type for line in lines(folder / "one.jsonl")] == ["session_started", "content"]
    assert [line.event.session_id for line in lines(folder / "other.jsonl")] == ["other"] * 3


async def test_files_are_for_their_user_alone(folder: Path) -> None:
    trace = TraceConsumer(folder / "new" / "traces", SESSION)
    await deliver_all(trace, Run().whole())
    assert trace.path is not None
    assert trace.path.stat().st_mode & 0o777 == 0o600
    assert trace.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "session_id",
    ["../up", "/etc/passwd", "a/b", "a\\b", "..", ".", ".hidden", "nul\0", "x" * 999, "\ud800", "C:x"],
)
async def test_session_id_is_never_a_path(folder: Path, session_id: str) -> None:
    trace = TraceConsumer(folder / "traces", session_id)
    await deliver_all(trace, Run(session_id).whole())
    assert [path.name for path in folder.iterdir()] == ["traces"]
    assert [path.name for path in (folder / "traces").iterdir()] == [file_name(session_id)]
    assert not file_name(session_id).startswith(".")


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_different_sessions_have_different_files(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)
    assert len(file_name(one)) < 255


def test_session_needs_an_id() -> None:
    with pytest.raises(ConfigurationError):
        TraceConsumer(Path("x"), "")


async def test_no_link_is_followed(folder: Path) -> None:
    (folder / "target").write_text("mine")
    (folder / f"{SESSION}.jsonl").symlink_to(folder / "target")
    with pytest.raises(StorageError, match="cannot be written"):
        await deliver_all(TraceConsumer(folder, SESSION), Run().whole())
    assert (folder / "target").read_text() == "mine"


def test_line_after_one_that_was_cut_off_is_whole(folder: Path) -> None:
    event = Run().event(Content, content="x")
    line = TraceLine(event=event, time=datetime.now(UTC), elapsed_ms=1.0, last_sequence=0)
    path = folder / "x.jsonl"
    path.write_bytes(format_line(line) + format_line(line)[:20])
    file = TraceFile(path)
    file.append(format_line(line))
    file.close()
    assert len(lines(path)) == 2
    assert path.read_bytes().count(b"\n") == 3


@given(st.binary(max_size=200))
def test_reading_survives_any_file(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        path.write_bytes(data + b'\n[1]\n{"event":1}\n{"event":{"type":"done"},"time":1}\nnull\n')
        assert list(read_trace(path)) == []
