"""Events: how fast a run passes through several consumers, what each of them costs, and what the agent itself adds."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from aeolus_sandbox.consumers import (
    CallbackConsumer,
    ConsoleConsumer,
    MultiConsumer,
    SqliteTraceConsumer,
    TraceConsumer,
    deliver,
)
from aeolus_sandbox.events import (
    Content,
    Done,
    Event,
    SessionStarted,
    StreamConsumer,
    StreamEvent,
    ToolCallCompleted,
    ToolCallStarted,
    ToolOutput,
    TurnCompleted,
)
from benchmarks.agent_run import Measured
from benchmarks.child import output_of
from benchmarks.results import Benchmark, Figure, Series, at_most
from benchmarks.rounds import Contender, Plan, interleaved

ROUNDS = 4
TURNS = 40
PACED_CHUNKS = 300
PAUSE_S = 0.002
"""Between two chunks, so that none waits for the one before it."""
AGENT_LIMIT_S = 300.0
FLAT_MIB = 8
PIECES = 24
"""Pieces of text, and of a tool's output, in each turn."""
Maker = Callable[[Path, IO[str]], StreamConsumer]
"""Makes a consumer that writes into a folder, or to a screen."""
_MAKERS: dict[str, Maker] = {
    "console": lambda _, screen: ConsoleConsumer(stream=screen),
    "JSONL": lambda folder, _: TraceConsumer(folder, "bench"),
    "SQLite": lambda folder, _: SqliteTraceConsumer(folder / "traces.db"),
}
ALL = "console, JSONL and SQLite"


async def measure(plan: Plan) -> Benchmark:
    """Measure all consumers together, each alone, and one that does nothing."""
    events = list(_run())
    contenders: dict[str, Contender] = {
        "nothing": _delivery(events, {"nothing": lambda *_: CallbackConsumer(lambda _: None)}),
        **{name: _delivery(events, {name: make}) for name, make in _MAKERS.items()},
        ALL: _delivery(events, _MAKERS),
    }
    series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS), unit="events/s")
    plan.say("an agent whose tool streams")
    paced = Series(unit="ms")
    for _ in range(plan.rounds(ROUNDS)):
        paced.samples.append((await _agent(PACED_CHUNKS, PAUSE_S)).latency_ms)
    few, many = (200, 2_000) if plan.quick else (10_000, 100_000) if plan.full else (5_000, 50_000)
    growth = [(await _agent(chunks, 0)).growth_bytes for chunks in (few, many)]
    figures = [
        _figure(series),
        at_most(
            "what the agent adds between a tool's chunk and its consumers", 1.0, paced.median, unit=" ms"
        ),
    ]
    if growth[0] is not None and growth[1] is not None:
        more = round((growth[1] - growth[0]) / 2**20, 1)
        name = f"host memory: what a run of {many} events takes more than one of {few}"
        figures.append(at_most(name, FLAT_MIB, more, unit=" MiB"))
    return Benchmark(
        name="events",
        series=series | {"tool to consumer": paced},
        figures=figures,
        notes={"events": len(events)},
    )


async def _agent(chunks: int, pause_s: float) -> Measured:
    async with asyncio.timeout(AGENT_LIMIT_S):
        output = await output_of(sys.executable, "-m", "benchmarks.agent_run", str(chunks), str(pause_s))
    return Measured.model_validate_json(output)


def _figure(series: dict[str, Series]) -> Figure:
    rate = series[ALL].median
    alone = ", ".join(f"{name} {series[name].median or 0:.0f}" for name in ("nothing", *_MAKERS))
    return Figure(
        name=f"events through `MultiConsumer` with {ALL}",
        target="-",
        measured="not measured" if rate is None else f"{rate:.0f} events/s (alone: {alone})",
        value=rate,
        met=None,
    )


def _delivery(events: list[StreamEvent], makers: dict[str, Maker]) -> Contender:
    async def once() -> float:
        with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile("w", encoding="utf-8") as screen:
            multi = MultiConsumer()
            for make in makers.values():
                multi.add(make(Path(name), screen))
            began = time.perf_counter()
            for event in events:
                await deliver(multi, event)
            return len(events) / (time.perf_counter() - began)

    return once


def _run() -> Iterator[StreamEvent]:
    """Yield a run: in each turn some text, and a tool that prints."""
    sequence = 0

    def event(kind: type[Event], **fields: Any) -> Any:
        nonlocal sequence
        sequence += 1
        return kind(sequence=sequence - 1, session_id="bench", **fields)

    yield event(SessionStarted, agent="bench", model="none/none")
    for turn in range(1, TURNS + 1):
        call = {"tool_call_id": f"call-{turn}", "tool_name": "code_interpreter"}
        for number in range(PIECES):
            yield event(Content, content=f"word {number} ")
        yield event(ToolCallStarted, **call, arguments='{"code": "work()"}')
        for number in range(PIECES):
            text = f"line {number} of turn {turn}\n"
            yield event(
                ToolOutput, **call, stream="stdout", text=text, chunk={"stream": "stdout", "content": text}
            )
        yield event(ToolCallCompleted, **call, result={"success": True}, success=True, duration_ms=1.0)
        yield event(TurnCompleted, turn=turn, stop_reason="tool_use")
    yield event(Done)
