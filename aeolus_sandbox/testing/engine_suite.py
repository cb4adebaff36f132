"""The promises of `Engine`, as checks that every engine must pass.

`await check_engine(make_engine, image="debian:bookworm-slim")` runs them all; a test runner that wants to name each of
them runs `await CHECKS[name](subject)`. The image needs a POSIX shell, coreutils and `stty`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from aeolus_sandbox.engine.base import Engine
from aeolus_sandbox.testing import (
    engine_suite_control,
    engine_suite_lifecycle,
    engine_suite_streams,
)
from aeolus_sandbox.testing.engine_subject import Check, Subject

CHECKS: Final[Mapping[str, Check]] = {
    check.__name__: check
    for module in (engine_suite_streams, engine_suite_control, engine_suite_lifecycle)
    for check in module.CHECKS
}
"""Every check, by name."""


async def check_engine(
    make_engine: Callable[[], AbstractAsyncContextManager[Engine]], *, image: str, rounds: int = 50
) -> None:
    """Check that an engine keeps its promises, each with an engine of its own.

    Args:
        make_engine: Gives an engine, closed when its context is left.
        image: An image that is on the engine.
        rounds: How often what can only go wrong now and then is tried.

    Raises:
        AssertionError: It breaks a promise; the note says which.
    """
    for name, check in CHECKS.items():
        async with make_engine() as engine:
            try:
                await check(Subject(engine, image=image, rounds=rounds))
            except BaseException as error:
                error.add_note(f"in the check {name!r}")
                raise
