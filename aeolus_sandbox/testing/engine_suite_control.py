"""The engine's promises about exit codes, signals, the terminal's size, and killing."""

import asyncio
from typing import Final

from aeolus_sandbox.testing.engine_subject import TIMEOUT_S, Check, Subject, exit_of, read_all, read_until

_SIGKILL_CODE: Final = 137


async def exit_codes_are_the_programs(subject: Subject) -> None:
    """A code is passed on, and a signal's number is added to 128."""
    for script, code in (
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", _SIGKILL_CODE),
    ):
        _, ended = await subject.output_of(subject.spec(script))
        assert ended.code == code, script
        assert not ended.out_of_memory, script


async def the_end_can_be_asked_for_again(subject: Subject) -> None:
    """Several may wait for the end, before and after it, and all are told the same."""
    async with subject.running(subject.spec("read -r line; exit 6")) as container, asyncio.timeout(TIMEOUT_S):
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(container.wait_exit()) for _ in range(3)]
            await container.stream.write(b"\n")
        assert [wait.result().code for wait in waits] == [6, 6, 6]
        assert (await container.wait_exit()).code == 6


async def a_signal_reaches_the_program(subject: Subject) -> None:
    """The program's own handler runs, and without one it ends by the signal."""
    script = "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    async with subject.running(subject.spec(script)) as container:
        await read_until(container, b"ready")
        await container.signal("SIGTERM")
        assert await read_all(container) == {"stdout": b"caught\n"}
        assert (await exit_of(container)).code == 3
    async with subject.running(subject.spec("echo ready; exec sleep 60")) as container:
        await read_until(container, b"ready")
        await container.signal("SIGUSR1")
        assert (await exit_of(container)).code == 128 + 10


async def a_foreground_signal_spares_the_shell(subject: Subject) -> None:
    """On a terminal the signal goes to what is in front, not to the shell that waits for it."""
    script = "set -m; echo ready; sleep 60; echo rc=$?; exit 4"
    for name, code in (("SIGTERM", b"rc=143"), ("SIGUSR1", b"rc=138"), ("SIGKILL", b"rc=137")):
        async with subject.running(subject.spec(script, tty=True)) as container:
            await read_until(container, b"ready")
            await asyncio.sleep(0.3)  # until `sleep` is in front: nothing says so from outside
            await container.signal_foreground(name)
            assert code in await read_until(container, code)
            assert (await exit_of(container)).code == 4, name


async def a_resize_is_noticed_once(subject: Subject) -> None:
    """The program is told of the new size by SIGWINCH, and sees it."""
    script = "trap 'stty size' WINCH; echo ready; for i in 1 2 3 4 5 6; do sleep 0.1; done; exit 0"
    async with subject.running(subject.spec(script, tty=True)) as container:
        await read_until(container, b"ready\r\n")
        await container.resize(cols=200, rows=50)
        assert await read_all(container) == {"stdout": b"50 200\r\n"}


async def what_comes_after_the_end_does_no_harm(subject: Subject) -> None:
    """Signals, sizes and kills that come too late have no effect."""
    for tty in (False, True):
        async with subject.running(subject.spec("exit 7", tty=tty)) as container, asyncio.timeout(TIMEOUT_S):
            await read_all(container)
            await exit_of(container)
            await container.signal("SIGTERM")
            await container.signal_foreground("SIGTERM")
            await container.resize(cols=100, rows=30)
            await container.kill()
            assert (await container.wait_exit()).code == 7


async def a_kill_ends_everything_at_once(subject: Subject) -> None:
    """No process survives a kill, whatever it ignores, and nobody waits for a grace time."""
    script = "trap '' TERM HUP INT; sleep 300 & setsid sleep 300 & echo ready; wait; wait"
    for tty in (False, True):
        async with subject.running(subject.spec(script, tty=tty)) as container:
            await read_until(container, b"ready")
            async with asyncio.timeout(5):
                await container.kill()
                await read_all(container)
                assert (await container.wait_exit()).code == _SIGKILL_CODE
                await container.kill()


async def a_reader_that_stops_reading_does_not_hang_a_kill(subject: Subject) -> None:
    """A container that floods a reader who does not read can still be killed and removed in time."""
    for tty in (False, True):
        async with subject.running(subject.spec("yes", tty=tty)) as container:
            await read_until(container, b"y")
            await asyncio.sleep(0.5)  # until every buffer on the way is full
            async with asyncio.timeout(10):
                await container.stream.aclose()
                await container.kill()
                assert (await container.wait_exit()).code == _SIGKILL_CODE
        async with subject.running(subject.spec("yes", tty=tty)) as container:
            await read_until(container, b"y")
            await asyncio.sleep(0.5)
            async with asyncio.timeout(10):
                await container.aclose()
    assert await subject.left() == 0


CHECKS: Final[tuple[Check, ...]] = (
    exit_codes_are_the_programs,
    the_end_can_be_asked_for_again,
    a_signal_reaches_the_program,
    a_foreground_signal_spares_the_shell,
    a_resize_is_noticed_once,
    what_comes_after_the_end_does_no_harm,
    a_kill_ends_everything_at_once,
    a_reader_that_stops_reading_does_not_hang_a_kill,
)
