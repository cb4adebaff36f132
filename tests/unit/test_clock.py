"""A session's time limits follow a monotonic clock, and stand still while they are paused."""

import asyncio

from aeolus_sandbox.exit_status import Stop
from aeolus_sandbox.limits import LimitName, Limits
from aeolus_sandbox.streaming.clock import SessionClock


class _Calls:
    """What a clock has called."""

    def __init__(self) -> None:
        self.stops: list[Stop] = []
        self.called = asyncio.Event()

    def __call__(self, stop: Stop) -> None:
        self.stops.append(stop)
        self.called.set()

    async def wait(self) -> Stop:
        async with asyncio.timeout(10):
            await self.called.wait()
        return self.stops[0]


def _clock(calls: _Calls, *, may_pause_s: float = 3600.0, **limits: float) -> SessionClock:
    return SessionClock(Limits.model_validate(limits), may_pause_s=may_pause_s, over=calls)


async def test_wall_time_is_over_once() -> None:
    calls = _Calls()
    _clock(calls, wall_time_s=0.01)
    assert (await calls.wait()).limit_hit == LimitName.WALL_TIME
    await asyncio.sleep(0.05)
    assert len(calls.stops) == 1


async def test_a_paused_clock_does_not_run_out_and_then_goes_on() -> None:
    calls = _Calls()
    clock = _clock(calls, wall_time_s=0.05, idle_time_s=0.05)
    with clock.paused():
        await asyncio.sleep(0.3)
        assert calls.stops == []
    assert (await calls.wait()).reason == "timed_out"


async def test_what_had_passed_before_a_pause_counts() -> None:
    calls = _Calls()
    loop = asyncio.get_running_loop()
    clock = _clock(calls, wall_time_s=60.0)
    await asyncio.sleep(0.05)
    with clock.paused():
        pass
    [wall] = clock._timers
    assert wall.when() <= loop.time() + 60.0 - 0.05


async def test_pauses_may_overlap() -> None:
    calls = _Calls()
    clock = _clock(calls, wall_time_s=0.02)
    with clock.paused():
        with clock.paused():
            pass
        await asyncio.sleep(0.1)
        assert calls.stops == []
    await calls.wait()


async def test_a_clock_that_may_not_pause_runs_on() -> None:
    calls = _Calls()
    clock = _clock(calls, may_pause_s=0.0, wall_time_s=0.02)
    with clock.paused():
        await calls.wait()


async def test_a_pause_that_is_too_long_ends_by_itself_and_is_not_given_back() -> None:
    calls = _Calls()
    clock = _clock(calls, may_pause_s=0.02, wall_time_s=0.02)
    with clock.paused():
        await calls.wait()
    with clock.paused():
        assert len(calls.stops) == 1


async def test_idle_time_starts_anew_with_every_sign_of_life() -> None:
    calls = _Calls()
    clock = _clock(calls, wall_time_s=60.0, idle_time_s=0.2)
    for _ in range(8):
        await asyncio.sleep(0.05)
        clock.touch()
    assert calls.stops == []
    assert (await calls.wait()).limit_hit == LimitName.IDLE_TIME


async def test_a_stopped_clock_is_silent_also_after_a_pause() -> None:
    calls = _Calls()
    clock = _clock(calls, wall_time_s=0.01, idle_time_s=0.01)
    with clock.paused():
        clock.stop()
    await asyncio.sleep(0.05)
    assert calls.stops == []
