"""The engine's promises about what goes in and comes out."""

import asyncio
import random
from itertools import cycle
from typing import Final

from aeolus_sandbox.engine.base import EngineContainer
from aeolus_sandbox.errors import SessionClosed
from aeolus_sandbox.testing.engine_subject import (
    TIMEOUT_S,
    Check,
    Subject,
    exit_of,
    read_all,
    read_until,
)

_AT_ONCE: Final = 4
_FLOOD_LINES: Final = 1_400_000  # 10 MB and a bit
_ECHOED_BYTES: Final = 3_000_000


async def output_of_a_quick_exit_is_never_lost(subject: Subject) -> None:
    """A container that ends at once is read to its last byte, and its code is known, however late we ask."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run(delay_s: float, *, tty: bool) -> None:
        async with turns:
            output, ended = await subject.output_of(
                subject.spec("echo quick; exit 9", tty=tty), delay_s=delay_s
            )
        assert output == {"stdout": b"quick\r\n" if tty else b"quick\n"}
        assert ended.code == 9

    async with asyncio.TaskGroup() as group:
        for number, delay_s in zip(range(subject.rounds), cycle((0, 0.05, 0.6)), strict=False):
            group.create_task(run(delay_s, tty=number % 2 == 1))


async def stdout_and_stderr_are_apart_on_pipes(subject: Subject) -> None:
    """Without a terminal each byte comes under the name of the stream that it was written to."""
    output, _ = await subject.output_of(
        subject.spec("echo one; echo two >&2; echo three; printf '\\377\\000\\001' >&2")
    )
    assert output == {"stdout": b"one\nthree\n", "stderr": b"two\n\xff\x00\x01"}


async def a_terminal_has_one_stream(subject: Subject) -> None:
    """With a terminal everything is stdout, and the terminal turns newlines into what it does."""
    output, _ = await subject.output_of(
        subject.spec("test -t 0 && test -t 2 && echo one && echo two >&2", tty=True)
    )
    assert output == {"stdout": b"one\r\ntwo\r\n"}


async def terminal_output_is_not_taken_for_frames(subject: Subject) -> None:
    """Whether a stream is framed is known from the specification, never guessed from the bytes."""
    header = b"\x01\x00\x00\x00\xff\xff\xff\xff"
    script = "printf '\\001\\000\\000\\000\\377\\377\\377\\377tail'"
    assert (await subject.output_of(subject.spec(script, tty=True)))[0] == {"stdout": header + b"tail"}
    assert (await subject.output_of(subject.spec(script)))[0] == {"stdout": header + b"tail"}


async def a_program_that_closes_its_output_has_not_ended(subject: Subject) -> None:
    """The end of output means the end of the container."""
    async with subject.running(subject.spec("exec >&- 2>&-; read -r line; exit 4")) as container:
        reading = asyncio.timeout(0.5)
        try:
            async with reading:
                assert await container.stream.read(), "the output ended while the program ran"
        except TimeoutError:
            pass
        await container.stream.write(b"go on\n")
        assert await read_all(container) == {}
        assert (await exit_of(container)).code == 4


async def a_background_child_does_not_hold_the_output_open(subject: Subject) -> None:
    """The container ends with its program, whatever else still runs in it."""
    async with asyncio.timeout(5):
        output, ended = await subject.output_of(subject.spec("(sleep 20; echo too-late) & echo done; exit 5"))
    assert (output, ended.code) == ({"stdout": b"done\n"}, 5)


async def ten_megabytes_arrive_intact(subject: Subject) -> None:
    """A flood is complete and in order, on pipes and on a terminal."""
    expected = b"".join(b"%d\n" % number for number in range(1, _FLOOD_LINES + 1))
    output, ended = await subject.output_of(subject.spec(f"seq 1 {_FLOOD_LINES}"))
    assert output == {"stdout": expected}
    assert ended.code == 0
    output, _ = await subject.output_of(subject.spec(f"stty -opost; seq 1 {_FLOOD_LINES}", tty=True))
    assert output == {"stdout": expected}


async def input_arrives_and_its_end_does_too(subject: Subject) -> None:
    """A half-close ends the program's input; what it then writes still arrives."""
    async with subject.running(subject.spec("cat | wc -c; echo fin")) as container:
        await container.stream.write(b"hello\n")
        container.stream.write_eof()
        assert (await read_all(container))["stdout"].split() == [b"6", b"fin"]
        assert (await exit_of(container)).code == 0


async def much_input_comes_back_intact(subject: Subject) -> None:
    """A writer waits while the program does not read, and nothing is lost on either way."""
    sent = random.Random(7).randbytes(_ECHOED_BYTES)  # noqa: S311 - any bytes will do

    async def send(container: EngineContainer) -> None:
        for start in range(0, len(sent), 100_000):
            await container.stream.write(sent[start : start + 100_000])
        container.stream.write_eof()

    async with subject.running(subject.program("cat")) as container, asyncio.timeout(TIMEOUT_S):
        async with asyncio.TaskGroup() as group:
            group.create_task(send(container))
            reading = group.create_task(read_all(container))
        assert reading.result() == {"stdout": sent}


async def nothing_can_be_written_after_the_end(subject: Subject) -> None:
    """A write to a container that has ended says so."""
    async with subject.running(subject.spec("exit 0")) as container:
        await read_all(container)
        await exit_of(container)
        try:
            await container.stream.write(b"anybody?")
        except SessionClosed:
            return
        msg = "a write after the end raised nothing"
        raise AssertionError(msg)


async def a_cancelled_read_loses_nothing(subject: Subject) -> None:
    """Whoever is cancelled in the middle of a read leaves what came to the next one."""
    chance = random.Random(11)  # noqa: S311 - not a secret
    found = b""
    script = "for i in $(seq 1 300); do echo $i; test $((i % 10)) -ne 0 || sleep 0.01; done"
    async with subject.running(subject.spec(script)) as container, asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                async with asyncio.timeout(chance.random() * 0.005):
                    pieces = await container.stream.read()
            except TimeoutError:
                continue
            if not pieces:
                break
            found += b"".join(piece.data for piece in pieces)
    assert found == b"".join(b"%d\n" % number for number in range(1, 301))


async def arguments_and_variables_arrive_unchanged(subject: Subject) -> None:
    """No engine puts a shell between us and the program."""
    arguments = ("", " ", "a b", "$HOME", "'", '"', "\\", "new\nline", "*", "-n", "é🎉")
    spec = subject.program("sh", "-c", 'printf "%s|" "$ODD" "$@"', "sh", *arguments)
    spec = spec.model_copy(update={"env": {**spec.env, "ODD": "a 'b' \"c\" $d\n"}})
    output, _ = await subject.output_of(spec)
    assert output["stdout"].decode() == "|".join(["a 'b' \"c\" $d\n", *arguments, ""])


async def a_terminal_echoes_input(subject: Subject) -> None:
    """Input on a terminal goes through it in both directions."""
    async with subject.running(subject.spec('read -r line; echo "got $line"', tty=True)) as container:
        await container.stream.write(b"hello\n")
        assert await read_until(container, b"got hello\r\n") == b"hello\r\ngot hello\r\n"


CHECKS: Final[tuple[Check, ...]] = (
    output_of_a_quick_exit_is_never_lost,
    stdout_and_stderr_are_apart_on_pipes,
    a_terminal_has_one_stream,
    terminal_output_is_not_taken_for_frames,
    a_program_that_closes_its_output_has_not_ended,
    a_background_child_does_not_hold_the_output_open,
    ten_megabytes_arrive_intact,
    input_arrives_and_its_end_does_too,
    much_input_comes_back_intact,
    nothing_can_be_written_after_the_end,
    a_cancelled_read_loses_nothing,
    arguments_and_variables_arrive_unchanged,
    a_terminal_echoes_input,
)
