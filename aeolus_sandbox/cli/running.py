"""Runs the async part of a command so that a signal ends it orderly: sessions cancelled, containers removed."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aeolus_sandbox.cli.exits import say

_ENDING_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_orderly(
    work: Coroutine[Any, Any, int], *, before_forced_end: Callable[[], None] | None = None
) -> int:
    """Run `work` and return its exit code, or 128 + n where signal n ended it.

    The first Ctrl-C, SIGTERM or SIGHUP cancels the work, which then removes its containers. The second ends the
    process at once; the guard, which runs on by itself, removes them then.

    Args:
        work: The command.
        before_forced_end: What has to be put right in any case, such as the terminal's mode.
    """
    return asyncio.run(_supervised(work, before_forced_end or _nothing))


async def _supervised(work: Coroutine[Any, Any, int], before_forced_end: Callable[[], None]) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def on_signal(number: int) -> None:
        if received:
            before_forced_end()
            os._exit(128 + number)
        received.append(number)
        if number == signal.SIGINT:
            say("interrupted, cleaning up (once more: leave that to the guard)")
        task.cancel()

    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup(1) has a say
            loop.add_signal_handler(number, on_signal, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]


def _nothing() -> None:
    pass
