"""Only what may succeed later is tried again, and not for ever."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import AsyncRetrying, RetryCallState

from aeolus_sandbox.errors import AeolusError, EngineUnavailable, LaunchFailed, ModelUnavailable
from aeolus_sandbox.retrying import _Wait, retry_while_retryable


class _Work:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


async def test_what_may_succeed_later_is_tried_again() -> None:
    work = _Work(EngineUnavailable("1"), EngineUnavailable("2"))
    assert await retry_while_retryable(work) == "done"
    assert work.calls == 3


@pytest.mark.parametrize("error", [LaunchFailed("no"), ValueError("no"), AeolusError("no")])
async def test_what_will_not_succeed_is_tried_once(error: Exception) -> None:
    work = _Work(error)
    with pytest.raises(type(error), match="no"):
        await retry_while_retryable(work)
    assert work.calls == 1


async def test_the_last_error_is_the_callers() -> None:
    work = _Work(*(EngineUnavailable(str(number)) for number in range(9)))
    with pytest.raises(EngineUnavailable, match="1"):
        await retry_while_retryable(work, attempts=2)
    assert work.calls == 2


def _unavailable(retry_after_s: float | None) -> ModelUnavailable:
    error = ModelUnavailable("later")
    error.retry_after_s = retry_after_s
    return error


def _state(error: Exception, *, attempt: int = 1) -> RetryCallState:
    state = RetryCallState(AsyncRetrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    state.set_exception((type(error), error, None))
    return state


@given(asked_s=st.none() | st.floats(), attempt=st.integers(1, 50), longest_s=st.floats(0.1, 100))
def test_a_wait_is_as_long_as_the_error_asks_for_but_never_too_long(
    asked_s: float | None, attempt: int, longest_s: float
) -> None:
    waited_s = _Wait(0.1, longest_s)(_state(_unavailable(asked_s), attempt=attempt))
    assert 0 <= waited_s <= longest_s
    if asked_s is not None and not math.isnan(asked_s):
        assert waited_s >= min(asked_s, longest_s)


def test_waits_grow_where_nothing_is_asked_for() -> None:
    for error in (EngineUnavailable("no"), _unavailable(None)):
        assert max(_Wait(0.1, 60)(_state(error)) for _ in range(100)) <= 0.1
        assert max(_Wait(0.1, 60)(_state(error, attempt=9)) for _ in range(100)) > 1


async def test_a_short_wait_can_be_configured() -> None:
    work = _Work(_unavailable(3600), _unavailable(3600))
    async with asyncio.timeout(10):
        assert await retry_while_retryable(work, first_wait_s=0, longest_wait_s=0.001) == "done"
