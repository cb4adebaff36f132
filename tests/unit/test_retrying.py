"""Only what may succeed later is tried again, and not for ever."""

import pytest

from aeolus_sandbox.errors import AeolusError, EngineUnavailable, LaunchFailed
from aeolus_sandbox.retrying import retry_while_retryable


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
