"""A read-only tool: it monitors a sensor, streams the readings, and ends with their statistics."""
# ruff: noqa: T201

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from statistics import fmean
from typing import ClassVar, Self

from pydantic import BaseModel, Field

from aeolus_sandbox import (
    CancelToken,
    OutputChunk,
    Policy,
    SessionManager,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    Window,
)


class SensorInput(BaseModel):
    """Which sensor to read, how many times, and how often."""

    device_id: str
    readings: int = Field(gt=0, le=100_000)
    interval_s: float = Field(default=0.0, ge=0)


class SensorReading(OutputChunk):
    """One reading."""

    number: int
    value: float
    unit: str = "°C"


class SensorSummary(BaseModel):
    """The statistics of all readings; the values are None where there was none."""

    readings_count: int
    average: float | None = None
    min: float | None = None
    max: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the statistics of these values."""
        if not values:
            return cls(readings_count=0)
        return cls(readings_count=len(values), average=fmean(values), min=min(values), max=max(values))


async def read_sensor(device_id: str, number: int) -> float:
    """Return a temperature; put a real device here."""
    return 20 + 5 * math.sin(math.pi * number / 2)


class SensorMonitor(StreamingTool[SensorInput, SensorReading, SensorSummary]):
    """Monitor a sensor; it may run again, because reading changes nothing."""

    name: ClassVar[str] = "sensor_monitor"
    description: ClassVar[str] = "Monitors a sensor and streams its readings."
    Input = SensorInput
    OutputChunk = SensorReading
    Final = SensorSummary
    policy: Policy = Window(max_chunks=50)
    idempotent = True

    async def start(
        self, tool_input: SensorInput, context: ToolContext
    ) -> StreamingToolHandle[SensorReading, SensorSummary]:
        """Return the handle at once; the readings are taken as the chunks are pulled."""
        cancel = CancelToken()
        values: list[float] = []

        async def chunks() -> AsyncIterator[SensorReading]:
            for number in range(tool_input.readings):
                if cancel.is_cancelled:
                    return
                values.append(await read_sensor(tool_input.device_id, number))
                yield SensorReading(number=number, value=values[-1])
                with contextlib.suppress(TimeoutError):  # a pause that a cancellation cuts short
                    async with asyncio.timeout(tool_input.interval_s):
                        await cancel.wait_cancelled()

        async def result() -> SensorSummary:
            return SensorSummary.of(values)

        return StreamingToolHandle(chunks=chunks(), finalize=result(), cancel=cancel)


async def main() -> None:
    """Take four readings."""
    asked = SensorInput(device_id="attic", readings=4, interval_s=0.1)
    async with SessionManager() as manager, await manager.open(SensorMonitor(), asked) as session:
        async for reading in session:
            print(reading.number, reading.value, reading.unit)
        print(await session.finalize())


if __name__ == "__main__":
    asyncio.run(main())
