"""Retrying what may succeed later: the one door to tenacity."""

import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from aeolus_sandbox.errors import AeolusError, ModelError

T = TypeVar("T")

ATTEMPTS: Final = 4
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 2.0
_MOST_DOUBLINGS: Final = 60


async def retry_while_retryable(
    work: Callable[[], Awaitable[T]],
    *,
    attempts: int = ATTEMPTS,
    first_wait_s: float = FIRST_WAIT_S,
    longest_wait_s: float = LONGEST_WAIT_S,
) -> T:
    """Call `work` until it succeeds, fails with an error that is not retryable, or `attempts` are used up.

    `work` must have had no effect when it fails with a retryable error.

    Args:
        work: What to do.
        attempts: How many calls there may be.
        first_wait_s: The most that is waited before the second call, in seconds; it doubles from call to call.
        longest_wait_s: The most that is ever waited, in seconds, also where the error asks for more.

    Raises:
        AeolusError: The last attempt's.
    """
    async for attempt in AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=_Wait(first_wait_s, longest_wait_s),
        retry=retry_if_exception(_is_retryable),
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("tenacity re-raises the last error")  # noqa: EM101 - pragma: no cover


def growing_wait_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return how long to wait after so many failures in a row: twice as long each time, and never all at one moment.

    Args:
        failures: How many there have been, at least one.
        first_s: The most that is waited after the first, in seconds.
        longest_s: The most that is ever waited, in seconds.
    """
    most_s = min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
    return random.uniform(most_s / 2, most_s)  # noqa: S311 - nothing secret


class _Wait:
    """A random, growing time; at least what the error asks for, as far as that is bearable."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._longest_s = longest_s
        self._growing = wait_random_exponential(multiplier=first_s, max=longest_s)

    def __call__(self, state: RetryCallState) -> float:
        """Return how long to wait before the next call, in seconds."""
        return max(self._growing(state), min(_asked_wait_s(state), self._longest_s))


def _asked_wait_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked_s = error.retry_after_s if isinstance(error, ModelError) else None
    return 0.0 if asked_s is None else asked_s


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, AeolusError) and error.retryable
