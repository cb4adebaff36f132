"""Retrying what may succeed later: the one door to tenacity."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from aeolus_sandbox.errors import AeolusError

T = TypeVar("T")

ATTEMPTS: Final = 4
LONGEST_WAIT_S: Final = 2.0


async def retry_while_retryable(work: Callable[[], Awaitable[T]], *, attempts: int = ATTEMPTS) -> T:
    """Call `work` until it succeeds, fails with an error that is not retryable, or `attempts` are used up.

    `work` must have had no effect when it fails with a retryable error.

    Raises:
        AeolusError: The last attempt's.
    """
    async for attempt in AsyncRetrying(
        stop=stop_after_attempt(attempts),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_S),
        retry=retry_if_exception(_is_retryable),
        reraise=True,
    ):
        with attempt:
            return await work()
    raise AssertionError("tenacity re-raises the last error")  # noqa: EM101 - pragma: no cover


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, AeolusError) and error.retryable
