"""However code ends, its session says why, at once, and the next call works."""

import time
from collections.abc import AsyncIterator

import pytest

from aeolus_sandbox import GuestProtocolError, LimitName, Limits, SessionBroken, SessionManager
from aeolus_sandbox.limits import MIB
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code, shared_manager

pytestmark = pytest.mark.docker

PROMPT_S = 5.0
"""How soon a dead kernel must be told, on however busy a machine; on a quiet one it takes some 60 ms."""
LOST = "the kernel was replaced: its variables are lost"
SWALLOWER = "import time\nprint('begun')\nwhile True:\n  try: time.sleep(.2)\n  except KeyboardInterrupt: print('nope')"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, *, timeout_s: float | None = None) -> Ran:
    """Run a cell in the kernel that this module's tests share."""
    return await run_code(shared, code, session_id="ends", timeout_s=timeout_s)


async def assert_lost(shared: SessionManager) -> None:
    """Assert that the next cell runs in a new kernel, and says so once."""
    ran = await cell(shared, "print('alive', 'mark' in globals())")
    assert ran.text() == "alive False\n"
    assert (ran.result.success, ran.result.environment_recreated) == (True, True)
    assert [chunk.content for chunk in ran.of("status")] == [LOST]
    assert not (await cell(shared, "1")).result.environment_recreated


async def assert_kept(shared: SessionManager) -> None:
    """Assert that the kernel and its variables are still there."""
    ran = await cell(shared, "print('alive', mark)")
    assert ran.text() == "alive 1\n"
    assert not ran.result.environment_recreated


async def test_kernel_killed_by_a_signal_is_told_at_once(shared: SessionManager) -> None:
    code = "import os,signal; mark = 1; print('before', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    ran = await cell(shared, code)
    assert ran.text() == "before\n"
    assert ran.error_name == "KernelDied"
    assert "killed by signal 9" in ran.text("error")
    assert (ran.result.status.reason, ran.result.status.code) == ("killed", 137)
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_kernel_out_of_memory_says_so_with_the_limit(shared: SessionManager) -> None:
    small = Limits(memory_bytes=256 * MIB)
    bomb = "x=[]\nwhile True: x.append(bytearray(20_000_000))"
    first = await run_code(shared, "mark = 1", session_id="small", limits=small)
    assert first.result.success
    ran = await run_code(shared, bomb, session_id="small")  # the limits are those of the kernel
    assert "out of memory, limit 256 MiB" in ran.text("error")
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("out_of_memory", LimitName.MEMORY)
    assert ran.seconds < 2 * PROMPT_S
    after = await run_code(shared, "1+1", session_id="small")
    assert (after.result.result, after.result.environment_recreated) == ("2", True)


async def test_sys_exit_is_an_error_and_the_kernel_goes_on(shared: SessionManager) -> None:
    ran = await cell(shared, "import sys; mark = 1; print('a'); sys.exit(3)")
    assert (ran.text(), ran.error_name, ran.error_value) == ("a\n", "SystemExit", "3")
    await assert_kept(shared)


@pytest.mark.parametrize("code", ["exit()", "quit()"])
async def test_exit_succeeds_and_the_next_cell_says_that_state_is_lost(
    shared: SessionManager, code: str
) -> None:
    ran = await cell(shared, f"mark = 1\n{code}")
    assert ran.result.success
    await assert_lost(shared)


async def test_os_exit_is_a_dead_kernel(shared: SessionManager) -> None:
    ran = await cell(shared, "print('x'); import os; os._exit(7)")
    assert ran.error_name == "KernelDied"
    assert "exited with code 7" in ran.error_value
    assert (ran.result.status.reason, ran.result.status.code) == ("exited", 7)
    assert not ran.result.success
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_segfault_is_told_with_its_words(shared: SessionManager) -> None:
    ran = await cell(shared, "import ctypes; ctypes.string_at(0)")
    assert "killed by signal 11" in ran.error_value
    assert "Segmentation fault" in ran.error_value
    assert (ran.result.status.reason, ran.result.status.code) == ("killed", 139)
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_kernel_that_dies_between_cells_is_told_to_the_next(shared: SessionManager) -> None:
    code = "import threading, os; threading.Timer(0.05, os._exit, [1]).start(); mark = 1"
    assert (await cell(shared, code)).error_name in {None, "KernelDied"}
    outcomes = [await cell(shared, "print('alive', 'mark' in globals())")]
    while outcomes[-1].text() != "alive False\n":  # it may run before the death, or be what the death hits
        assert len(outcomes) < 20
        outcomes.append(
            await cell(shared, "import time; time.sleep(0.05); print('alive', 'mark' in globals())")
        )
    assert any(ran.result.environment_recreated for ran in outcomes)


async def test_code_that_kills_the_guest_too_is_told_as_data(shared: SessionManager) -> None:
    code = "import os, signal\nprint('before', flush=True)\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"
    ran = await run_code(shared, code, session_id="guest killer")
    assert ran.error_name == "KernelDied"
    assert not ran.result.success
    assert ran.seconds < 2 * PROMPT_S
    after = await run_code(shared, "1+1", session_id="guest killer")
    assert (after.result.result, after.result.environment_recreated) == ("2", True)


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        '{"frame":"ready","protocol":99,"language":"","kernel":""}',
        '{"frame":"fault","message":"x"}',
    ],
)
async def test_code_that_writes_frames_of_its_own_harms_only_itself(
    shared: SessionManager, line: str
) -> None:
    code = (
        "import os, glob\nfor fd in glob.glob(f'/proc/{os.getppid()}/fd/*'):\n"
        "  if os.readlink(fd).startswith('pipe'):\n"
        f"    try: os.write(os.open(fd, os.O_WRONLY), b'{line}' + bytes([10]))\n    except OSError: pass\n"
        "while True: pass"
    )
    with pytest.raises((SessionBroken, GuestProtocolError)):
        await run_code(shared, code, session_id="forger")
    after = await run_code(shared, "1+1", session_id="forger")
    assert (after.result.result, after.result.environment_recreated) == ("2", True)


@pytest.mark.slow
async def test_code_that_stops_the_guest_ends_at_its_timeout(shared: SessionManager) -> None:
    code = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass"
    ran = await run_code(shared, code, timeout_s=0.5)
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)


@pytest.mark.parametrize("code", ["n = input('how many? ')", "import getpass; getpass.getpass()"])
async def test_asking_for_input_is_an_error_at_once(shared: SessionManager, code: str) -> None:
    ran = await cell(shared, f"mark = 1\n{code}")
    assert ran.error_name == "StdinNotImplementedError"
    assert ran.seconds < PROMPT_S
    await assert_kept(shared)


async def test_programs_that_read_stdin_find_its_end(shared: SessionManager) -> None:
    ran = await cell(
        shared, "import subprocess; subprocess.run('cat; echo rc $?', shell=True, capture_output=True).stdout"
    )
    assert ran.result.result == r"b'rc 0\n'"


async def test_interrupt_by_timeout_runs_the_cleanup_and_keeps_the_state(shared: SessionManager) -> None:
    code = "import time; mark = 1; print('begun')\ntry:\n  time.sleep(30)\nfinally:\n  print('cleanup')"
    ran = await cell(shared, code, timeout_s=1)
    assert ran.text() == "begun\ncleanup\n"
    assert ran.error_name == "KeyboardInterrupt"
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    assert not ran.result.success
    await assert_kept(shared)


async def test_interrupt_ends_the_programs_that_a_cell_has_started(shared: SessionManager) -> None:
    ran = await cell(shared, "mark = 1\n!sleep 31", timeout_s=1)
    assert ran.result.status.reason == "timed_out"
    assert not ran.result.success
    await assert_kept(shared)
    processes = await cell(
        shared,
        "import glob\nfor path in glob.glob('/proc/[0-9]*/cmdline'):\n  try: print(open(path).read())\n"
        "  except OSError: pass",
    )
    assert "kernel" in processes.text()
    assert "sleep" not in processes.text()


async def test_code_that_swallows_interrupts_loses_its_kernel(shared: SessionManager) -> None:
    ran = await cell(shared, f"mark = 1\n{SWALLOWER}", timeout_s=1)
    assert "nope" in ran.text()
    assert ran.error_name == "KernelDied"
    assert ran.result.status.reason == "timed_out"
    await assert_lost(shared)


async def test_cancel_with_a_session_id_interrupts_and_keeps_the_state(shared: SessionManager) -> None:
    code = "import time; mark = 1\ntry: print('begun', flush=True); time.sleep(60)\nfinally: print('cleanup')"
    async with await open_code(shared, code, session_id="ends") as session:
        await read_until(session, "begun")
        began = time.monotonic()
        await session.cancel()
        result = await finish(session)
        assert time.monotonic() - began < PROMPT_S
    assert (result.status.reason, result.output) == ("cancelled", "begun\ncleanup\n")
    assert result.error is not None
    assert result.error.name == "KeyboardInterrupt"
    await assert_kept(shared)


async def test_cancel_without_a_session_id_ends_everything_at_once(shared: SessionManager) -> None:
    async with await open_code(shared, SWALLOWER) as session:
        await read_until(session, "begun")
        began = time.monotonic()
        await session.cancel()
        result = await finish(session)
        assert time.monotonic() - began < PROMPT_S
    assert result.status.reason == "cancelled"
    assert not result.success


async def test_leaving_a_session_early_frees_its_kernel_for_the_next(shared: SessionManager) -> None:
    async with await open_code(
        shared, "import time; mark = 1; print('begun'); time.sleep(60)", session_id="ends"
    ) as session:
        await read_until(session, "begun")
    assert (await finish(session)).status.reason == "cancelled"
    await assert_kept(shared)


async def test_cancel_after_the_end_changes_nothing(shared: SessionManager) -> None:
    async with await open_code(shared, "mark = 1", session_id="ends") as session:
        result = await finish(session)
        await session.cancel()
        assert (await finish(session)) == result
    assert result.success
    await assert_kept(shared)


async def test_idle_time_ends_silent_code(shared: SessionManager) -> None:
    ran = await run_code(
        shared, "mark = 1\nimport time; time.sleep(60)", session_id="ends", limits=Limits(idle_time_s=0.5)
    )
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.IDLE_TIME)
    await assert_kept(shared)


@pytest.mark.slow
async def test_fork_bomb_ends_at_its_timeout_and_leaves_the_host_alone(shared: SessionManager) -> None:
    code = "import os\nmark = 1\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    limits = Limits(pids=64, cpus=0.5)
    ran = await run_code(shared, code, timeout_s=1.5, limits=limits)
    assert ran.result.status.reason == "timed_out"
    after = await run_code(shared, "1+1")
    assert after.result.result == "2"
