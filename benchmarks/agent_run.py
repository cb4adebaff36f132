"""One run of an agent whose tool streams many chunks, in a process of its own so that its peak memory is its own.

Usage: python -m benchmarks.agent_run CHUNKS PAUSE_S; prints one JSON object.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pydantic import BaseModel

from aeolus_sandbox import (
    Agent,
    CallbackConsumer,
    MultiConsumer,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    TraceConsumer,
    Window,
)
from aeolus_sandbox.events import StreamEvent, ToolOutput
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel, Turn
from benchmarks.throughput_run import memory_bytes


class Measured(BaseModel):
    """What one run gave."""

    events: int
    latency_ms: float
    """Median of the times from a tool's yielding a chunk to the consumer's getting it."""
    growth_bytes: int | None


class _Beats(BaseModel):
    chunks: int
    pause_s: float


class _Beat(OutputChunk):
    number: int
    at: float


class _Ended(BaseModel):
    chunks: int


class _Heart(StreamingTool[_Beats, _Beat, _Ended]):
    """Streams chunks that say when they were made."""

    name = "heart"
    description = "beats"
    Input = _Beats
    OutputChunk = _Beat
    Final = _Ended
    policy = Window(max_chunks=1000, wait_for_reader=True)

    async def start(self, tool_input: _Beats, context: ToolContext) -> StreamingToolHandle[_Beat, _Ended]:
        async def beat() -> AsyncIterator[_Beat]:
            for number in range(tool_input.chunks):
                if tool_input.pause_s:
                    await asyncio.sleep(tool_input.pause_s)
                yield _Beat(number=number, at=time.perf_counter())

        async def ended() -> _Ended:
            return _Ended(chunks=tool_input.chunks)

        return StreamingToolHandle(chunks=beat(), finalize=ended())


async def run(chunks: int, pause_s: float) -> Measured:
    """Run the agent once; its events also go into a JSONL trace."""
    latencies: list[float] = []
    events = 0

    def take(event: StreamEvent) -> None:
        nonlocal events
        events += 1
        if isinstance(event, ToolOutput) and isinstance(event.chunk, dict) and len(latencies) < 10_000:
            latencies.append((time.perf_counter() - float(str(event.chunk["at"]))) * 1000)

    with tempfile.TemporaryDirectory() as folder:
        call = Call("heart", {"chunks": chunks, "pause_s": pause_s})
        agent = Agent(model=ScriptedModel([Turn(call), Turn("done")]), tools=[_Heart()])
        trace = TraceConsumer(Path(folder), "bench", format="compact")
        before = memory_bytes("VmRSS")
        await agent.run_streaming("beat", MultiConsumer().add(CallbackConsumer(take)).add(trace))
        after = memory_bytes("VmHWM")
    growth = None if before is None or after is None else max(0, after - before)
    return Measured(events=events, latency_ms=statistics.median(latencies), growth_bytes=growth)


if __name__ == "__main__":
    print(asyncio.run(run(int(sys.argv[1]), float(sys.argv[2]))).model_dump_json())
