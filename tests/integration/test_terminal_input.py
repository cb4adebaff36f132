"""What is sent to a command reaches it: text, bytes, the end of input, signals and sizes."""

import asyncio

import pytest

from aeolus_sandbox import (
    Bytes,
    EndOfInput,
    Resize,
    SessionClosed,
    SessionManager,
    Signal,
    StdinEvent,
    Text,
    UnixSignal,
)
from tests.integration.running import (
    PATIENCE_S,
    TerminalSession,
    open_command,
    read_rest,
    read_until,
    result_of,
    run_command,
)

pytestmark = pytest.mark.docker

QUIET_BASH = ("bash", "--norc", "--noprofile", "--noediting", "-i")
IN_FRONT = "import os, select, signal, sys, time; "


# The end of input.


async def test_end_of_input_on_pipes_reaches_the_program_and_its_answer_arrives(
    manager: SessionManager,
) -> None:
    session = await open_command(manager, "cat | wc -c; echo fin", tty=False)
    await session.send_stdin(Text("hello\n"))
    await session.send_stdin(EndOfInput())
    assert (await read_rest(session)).split() == ["6", "fin"]
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_end_of_input_on_a_terminal_ends_a_program_in_the_middle_of_a_line(
    manager: SessionManager,
) -> None:
    session = await open_command(manager, "cat; echo ended")
    await session.send_stdin(Text("abc"))
    await session.send_stdin(EndOfInput())
    text = await read_rest(session)
    assert text.startswith("abc")
    assert "abcended" in text.replace("^D", "").replace("\b", "")
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_end_of_input_on_an_empty_line_ends_a_shell(manager: SessionManager) -> None:
    session = await open_command(manager, QUIET_BASH)
    await session.send_stdin(Text("echo a$((1+1))b\n"))
    await read_until(session, "a2b")
    await session.send_stdin(EndOfInput())
    assert (await result_of(session)).exit_code == 0
    await session.aclose()


async def test_input_after_the_end_of_input_is_refused(manager: SessionManager) -> None:
    session = await open_command(manager, "cat; echo ended; sleep 300; :", tty=False)
    await session.send_stdin(EndOfInput())
    await read_until(session, "ended")
    with pytest.raises(SessionClosed):
        await session.send_stdin(Text("more"))
    await session.aclose()


# Text and bytes.


async def test_every_byte_reaches_a_program_on_pipes(manager: SessionManager) -> None:
    every = bytes(range(256)) * 300
    session = await open_command(manager, "cat", tty=False)
    await session.send_stdin(Bytes(every))
    await session.send_stdin(Text("é\n"))
    await session.send_stdin(EndOfInput())
    received = b"".join([chunk.data async for chunk in session])
    assert received == every + "é\n".encode()
    await session.aclose()


async def test_keys_that_detach_a_docker_client_are_keys_like_any_other(manager: SessionManager) -> None:
    session = await open_command(manager, "stty raw -echo; printf up; head -c 6 | od -An -tx1")
    await read_until(session, "up")
    for byte in b"\x10\x11\x10\x11a\xff":
        await session.send_stdin(Bytes(bytes([byte])))
    await session.send_stdin(Text("\n"))
    assert (await read_rest(session)).split() == ["10", "11", "10", "11", "61", "ff"]
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_conversation_with_an_interactive_program(manager: SessionManager) -> None:
    session = await open_command(manager, ("python3", "-q", "-i"))
    await read_until(session, ">>> ")
    await session.send_stdin(Text("6 * 7\n"))
    await read_until(session, "42")
    await session.send_stdin(Text("exit(5)\n"))
    assert (await result_of(session)).exit_code == 5
    await session.aclose()


async def _send_for_ever(session: TerminalSession, *, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while True:
            await session.send_stdin(Bytes(b"x" * 100_000))


@pytest.mark.parametrize("tty", [True, False])
async def test_program_that_does_not_read_makes_the_sender_wait_and_not_the_host_fill_up(
    manager: SessionManager, tty: bool
) -> None:
    session = await open_command(manager, "stty raw -echo 2>/dev/null; echo up; sleep 300; :", tty=tty)
    await read_until(session, "up")
    with pytest.raises(TimeoutError):
        await _send_for_ever(session, within_s=5)
    async with asyncio.timeout(PATIENCE_S):
        await session.cancel()
        assert (await session.finalize()).status.reason == "cancelled"
        await session.aclose()


async def test_sender_that_waits_is_told_when_the_program_ends(manager: SessionManager) -> None:
    session = await open_command(manager, "echo up; sleep 1", tty=False)
    await read_until(session, "up")
    with pytest.raises(SessionClosed):
        await _send_for_ever(session, within_s=PATIENCE_S)
    assert (await result_of(session)).status.ok
    await session.aclose()


# Signals.


async def _shell(manager: SessionManager) -> TerminalSession:
    session = await open_command(manager, QUIET_BASH)
    await session.send_stdin(Text("PS1='> '; stty -echo; echo rea''dy\n"))
    await read_until(session, "ready")
    return session


@pytest.mark.parametrize(
    ("signal", "code"),
    [
        (UnixSignal.SIGINT, 130),
        (UnixSignal.SIGQUIT, 131),
        (UnixSignal.SIGTERM, 143),
        (UnixSignal.SIGKILL, 137),
        (UnixSignal.SIGHUP, 129),
        (UnixSignal.SIGUSR1, 138),
        (UnixSignal.SIGUSR2, 140),
    ],
)
async def test_signal_ends_what_is_in_front_and_the_shell_lives_on(
    manager: SessionManager, signal: UnixSignal, code: int
) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text("sh -c 'echo in front; exec sleep 300'\n"))
    await read_until(session, "in front")
    await session.send_stdin(Signal(signal))
    await session.send_stdin(Text("echo rc=$?\n"))
    await read_until(session, f"rc={code}")
    await session.send_stdin(Text("exit 0\n"))
    assert (await result_of(session)).status.ok
    await session.aclose()


@pytest.mark.parametrize(
    "signal", [UnixSignal.SIGINT, UnixSignal.SIGQUIT, UnixSignal.SIGTERM, UnixSignal.SIGUSR1]
)
async def test_signal_is_handled_by_the_program_in_front(manager: SessionManager, signal: UnixSignal) -> None:
    session = await _shell(manager)
    program = (
        # Not `print`, here and below: it cannot be called while it still runs below the handler.
        f"{IN_FRONT}signal.signal(signal.{signal}, lambda *_: (os.write(1, b'got it'), sys.exit(7))); "
        # Short naps: a signal that comes just before a sleep does not cut it short.
        "print('in fr' + 'ont', flush=True); [time.sleep(0.05) for _ in range(6000)]"
    )
    await session.send_stdin(Text(f'python3 -c "{program}"\n'))
    await read_until(session, "in front")
    await session.send_stdin(Signal(signal))
    await read_until(session, "got it")
    await session.send_stdin(Text("echo rc=$?\n"))
    await read_until(session, "rc=7")
    await session.aclose()


async def test_signal_reaches_the_whole_foreground_group_and_nothing_behind(manager: SessionManager) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text("sleep 297 &\nsh -c 'sleep 298 | { echo in front; sleep 299; }'\n"))
    await read_until(session, "in front")
    await session.send_stdin(Signal(UnixSignal.SIGTERM))
    await session.send_stdin(Text("echo left=$(pgrep -x sleep -a | grep -o '29.' | tr '\\n' ,)\n"))
    assert "left=297," in await read_until(session, ",")
    await session.aclose()


@pytest.mark.parametrize(
    ("signal", "code"), [(UnixSignal.SIGINT, 130), (UnixSignal.SIGTERM, 143), (UnixSignal.SIGUSR1, 138)]
)
async def test_signal_on_pipes_ends_the_program(
    manager: SessionManager, signal: UnixSignal, code: int
) -> None:
    session = await open_command(manager, "echo up; exec sleep 300", tty=False)
    await read_until(session, "up")
    await session.send_stdin(Signal(signal))
    assert (await result_of(session)).exit_code == code
    await session.aclose()


async def test_sigkill_on_pipes_ends_the_program(manager: SessionManager) -> None:
    session = await open_command(manager, "echo up; exec sleep 300", tty=False)
    await read_until(session, "up")
    await session.send_stdin(Signal(UnixSignal.SIGKILL))
    result = await result_of(session)
    assert (result.status.reason, result.exit_code) == ("killed", 137)
    await session.aclose()


# The size.


async def test_size_is_right_at_the_very_first_command(manager: SessionManager) -> None:
    outcome = await run_command(manager, "stty size; tput cols", rows=40, cols=120)
    assert outcome.text.split() == ["40", "120", "120"]


async def test_resize_tells_the_program_once(manager: SessionManager) -> None:
    program = (
        f"{IN_FRONT}signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'now %d %d' % os.get_terminal_size())); "
        # As above: a signal that comes just before a blocking read does not cut it short.
        "print('up', flush=True); list(iter(lambda: bool(select.select([sys.stdin], [], [], 0.05)[0]), True)); "
        "sys.stdin.readline(); print('end')"
    )
    session = await open_command(manager, ("python3", "-c", program), rows=40, cols=120)
    await read_until(session, "up")
    await session.send_stdin(Resize(cols=200, rows=50))
    await read_until(session, "now 200 50")
    await session.send_stdin(Text("\n"))
    assert "now" not in await read_rest(session)
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_resize_right_after_the_start_is_not_lost(manager: SessionManager) -> None:
    session = await open_command(manager, "read -r line; stty size", rows=40, cols=120)
    await session.send_stdin(Resize(cols=200, rows=50))
    await session.send_stdin(Text("\n"))
    assert "50 200" in await read_rest(session)
    await session.aclose()


@pytest.mark.parametrize(
    ("event", "command", "code"),
    [
        (EndOfInput(), "cat; exit 3", 3),
        (Signal(UnixSignal.SIGINT), ("sleep", "300"), 130),
        (Text("a\n"), "read -r line && exit 5", 5),
    ],
    ids=["end of input", "interrupt", "text"],
)
async def test_input_right_after_the_start_means_what_it_means_later(
    manager: SessionManager, event: StdinEvent, command: str | tuple[str, ...], code: int
) -> None:
    for _ in range(8):
        session = await open_command(manager, command)
        await session.send_stdin(event)
        result = await result_of(session)
        assert result.exit_code == code
        await session.aclose()


async def test_resize_after_the_exit_is_harmless(manager: SessionManager) -> None:
    session = await open_command(manager, "exit 0")
    await session.send_stdin(Resize(cols=100, rows=30))
    assert (await result_of(session)).status.ok
    with pytest.raises(SessionClosed):
        await session.send_stdin(Resize(cols=100, rows=30))
    assert (await result_of(session)).status.ok
    await session.aclose()


async def test_default_size_is_that_of_a_usual_terminal(manager: SessionManager) -> None:
    outcome = await run_command(manager, "stty size; echo $COLUMNS-$LINES")
    assert outcome.text.split() == ["24", "80", "-"]


async def test_terminal_is_in_its_usual_mode_for_the_program(manager: SessionManager) -> None:
    outcome = await run_command(manager, "stty -a")
    settings = outcome.text.replace(";", " ").split()
    assert {"icanon", "echo", "isig", "opost", "icrnl", "onlcr"} <= set(settings)
    assert "-icanon" not in settings
