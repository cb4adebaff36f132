"""A shell with its children: background jobs, unfinished commands, shells that end, and trees that must go.

The rule for a session that runs a shell: it ends with its shell, with the shell's exit code, and then takes no input.
"""

import time

import pytest

from aeolus_sandbox import LimitName, SessionClosed, SessionManager, Signal, Text, UnixSignal
from aeolus_sandbox.engine.base import SESSION_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from tests.integration.running import TerminalSession, open_command, read_until, result_of, run_command

pytestmark = pytest.mark.docker


async def _shell(manager: SessionManager) -> TerminalSession:
    session = await open_command(manager, ("bash", "--norc", "--noprofile", "--noediting", "-i"))
    await session.send_stdin(Text("PS1='> ' PS2='more> '; stty -echo; echo rea''dy\n"))
    await read_until(session, "ready")
    return session


# A child in the background.


@pytest.mark.parametrize("tty", [True, False])
async def test_background_child_does_not_keep_a_command_from_ending(
    manager: SessionManager, tty: bool
) -> None:
    outcome = await run_command(manager, "(sleep 200; echo too late) & echo done; exit 5", tty=tty)
    assert outcome.result.exit_code == 5
    assert outcome.result.status.reason == "exited"
    assert outcome.text.split() == ["done"]
    assert outcome.seconds < 30


@pytest.mark.parametrize("tty", [True, False])
async def test_background_child_that_left_its_session_does_not_either(
    manager: SessionManager, tty: bool
) -> None:
    outcome = await run_command(manager, "setsid sleep 200 & nohup sleep 200 & sleep 0.3; exit 6", tty=tty)
    assert outcome.result.exit_code == 6
    assert outcome.seconds < 30


async def test_shell_goes_on_while_a_background_child_runs(manager: SessionManager) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text("(sleep 200; echo too-late) & echo do''ne\n"))
    await read_until(session, "done")
    await session.send_stdin(Text("echo ne''xt\n"))
    assert "too-late" not in await read_until(session, "next")
    await session.send_stdin(Text("exit 0\n"))
    assert (await result_of(session)).status.ok
    await session.aclose()


# Unfinished commands.


async def test_heredoc_is_taken_as_it_is(manager: SessionManager) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text("cat > /tmp/f <<'EOF'\none $HOME\ntwo\nEOF\n"))
    await session.send_stdin(Text("wc -l < /tmp/f; cat /tmp/f; echo en''d\n"))
    assert "2\r\none $HOME\r\ntwo\r\nend" in await read_until(session, "end")
    await session.aclose()


async def test_unfinished_command_shows_a_prompt_that_an_interrupt_leaves(manager: SessionManager) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text('echo "never closed\n'))
    await read_until(session, "more> ")
    assert session.status is None
    await session.send_stdin(Signal(UnixSignal.SIGINT))
    await read_until(session, "> ")  # what is typed before that is flushed (termios(3), NOFLSH)
    await session.send_stdin(Text("echo wor''ks\n"))
    await read_until(session, "works")
    await session.aclose()


async def test_unfinished_command_in_one_shot_is_a_clear_error(manager: SessionManager) -> None:
    outcome = await run_command(manager, 'echo "never closed', tty=False)
    assert outcome.result.exit_code == 2
    assert b"nterminated quoted string" in outcome.stderr or b"unexpected EOF" in outcome.stderr


@pytest.mark.parametrize(
    ("command", "text", "code"),
    [
        ("cat <<'EOF'\none\ntwo\nEOF", "one\ntwo\n", 0),
        ("echo hi # note", "hi\n", 0),
        ("echo hi \\\nthere", "hi there\n", 0),
        ("echo 'a'\\''b' \"$((1+1))\"; (exit 3)", "a'b 2\n", 3),
        ("printf '%s\\n' 'é' '😀' \"\ttab\"", "é\n😀\n\ttab\n", 0),
        ("false", "", 1),
        ("nosuchprogram 2>/dev/null", "", 127),
        ("echo one\necho two\n\n", "one\ntwo\n", 0),
        ("\necho first", "first\n", 0),
    ],
)
async def test_command_text_arrives_as_it_was_written(
    manager: SessionManager, command: str, text: str, code: int
) -> None:
    outcome = await run_command(manager, command, tty=False)
    assert (outcome.text, outcome.result.exit_code) == (text, code)
    on_terminal = await run_command(manager, command)
    assert (on_terminal.text.replace("\r\n", "\n"), on_terminal.result.exit_code) == (text, code)


async def test_long_command_is_not_cut_by_the_terminal(manager: SessionManager) -> None:
    words = " ".join(f"word{n}" for n in range(9000))
    outcome = await run_command(manager, f"printf '%s\\n' {words} | wc -l")
    assert outcome.text.split() == ["9000"]


# Shells that end.


@pytest.mark.parametrize(
    ("line", "code", "reason"),
    [
        ("exit 3", 3, "exited"),
        ("sleep 300 & exit 3", 3, "exited"),
        ("exec true", 0, "exited"),
        ("exec sh -c 'exit 4'", 4, "exited"),
        ("kill -9 $$", 137, "killed"),
        ("set -e; false", 1, "exited"),
        ("set -euo pipefail; false | true", 1, "exited"),
    ],
)
async def test_session_ends_with_its_shell_and_tells_the_true_code(
    manager: SessionManager, line: str, code: int, reason: str
) -> None:
    session = await _shell(manager)
    await session.send_stdin(Text(line + "\n"))
    result = await result_of(session)
    assert (result.exit_code, result.status.reason) == (code, reason)
    with pytest.raises(SessionClosed):
        await session.send_stdin(Text("echo a\n"))
    await session.aclose()


@pytest.mark.parametrize(("signal", "code"), [("TERM", 143), ("SEGV", 139), ("USR1", 138), ("KILL", 137)])
async def test_death_by_a_signal_is_told_in_the_code(manager: SessionManager, signal: str, code: int) -> None:
    outcome = await run_command(manager, f"kill -s {signal} $$", tty=False)
    assert outcome.result.exit_code == code
    assert not outcome.result.status.ok


async def test_missing_program_is_a_code_and_not_an_exception(manager: SessionManager) -> None:
    outcome = await run_command(manager, ("nosuchprogram", "x"))
    assert outcome.result.exit_code == 127
    assert "nosuchprogram" in outcome.text


# Time limits.


@pytest.mark.parametrize("tty", [True, False])
async def test_timeout_ends_the_whole_tree_and_says_so(
    manager: SessionManager, engine: DockerEngine, tty: bool
) -> None:
    stubborn = (
        "trap '' TERM HUP INT; (trap '' TERM HUP INT; setsid sleep 300) & echo begun; sleep 300; sleep 300"
    )
    session = await open_command(manager, ("bash", "-c", stubborn), tty=tty, timeout_s=2)
    began = time.monotonic()
    assert "begun" in await read_until(session, "begun")
    result = await result_of(session)
    assert 1 < time.monotonic() - began < 2 + 8  # an engine's usual grace time alone is 10 s
    assert (result.status.reason, result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    assert result.exit_code == 137
    assert "timed out" in result.as_text()
    assert "wall time limit" in result.as_text()
    began = time.monotonic()
    await session.aclose()
    assert time.monotonic() - began < 8
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


async def test_timeout_without_any_output_is_told_too(manager: SessionManager) -> None:
    outcome = await run_command(manager, "sleep 300; :", timeout_s=1)
    assert outcome.text == ""
    assert outcome.result.status.reason == "timed_out"
    assert "no output" in outcome.result.as_text()


async def test_command_that_ends_in_time_is_not_touched_by_its_limit(manager: SessionManager) -> None:
    outcome = await run_command(manager, "sleep 1; echo whole; exit 3", timeout_s=60)
    assert outcome.result.status.reason == "exited"
    assert outcome.result.exit_code == 3
    assert outcome.result.status.limit_hit is None
