"""The kernel host with a real ipykernel: kernels that die, and interrupts."""

import signal
import time

import pytest

from aeolus_sandbox.guest.frames import (
    Error,
    Fault,
    Interrupt,
    KernelDied,
    KillKernel,
    Ready,
    Stream,
)
from tests.unit.guest_process import Guest, death, errors, gone, printed, status


@pytest.mark.parametrize(
    ("code", "signal_number", "exit_code"),
    [
        ("import os, signal; print('before', flush=True); os.kill(os.getpid(), signal.SIGKILL)", 9, None),
        ("print('before', flush=True); import os; os._exit(7)", None, 7),
        ("print('before', flush=True); import ctypes; ctypes.string_at(0)", 11, None),
    ],
)
def test_kernel_death_is_told_as_what_it_was(
    guest: Guest, code: str, signal_number: int | None, exit_code: int | None
) -> None:
    op = guest.start(code)
    queued = guest.start("print('never')")
    guest.says("before")
    began = time.monotonic()
    died = death(guest.finish(op))
    assert time.monotonic() - began < 1
    assert (died.signal, died.exit_code) == (signal_number, exit_code)
    assert ("Segmentation fault" in died.stderr_tail) == (signal_number == signal.SIGSEGV)
    assert status(guest.finish(queued)) == "aborted"
    guest.ready()
    assert printed(guest.run("print('ok')")) == "ok\n"


def test_sys_exit_is_an_error_and_the_kernel_goes_on(guest: Guest) -> None:
    guest.run("a = 1")
    replies = guest.run("import sys; print('a'); sys.exit(3)")
    assert [(reply.name, reply.value) for reply in replies if isinstance(reply, Error)] == [
        ("SystemExit", "3")
    ]
    assert printed(guest.run("print(a)")) == "1\n"


def test_exit_is_ok_then_a_death_and_the_next_cell_runs_anew(guest: Guest) -> None:
    op = guest.start("exit()")
    following = guest.start("print('ok')")
    assert status(guest.finish(op)) == "ok"
    replies = guest.finish(following)
    assert [(reply.op, reply.exit_code) for reply in replies if isinstance(reply, KernelDied)] == [(0, 0)]
    assert any(isinstance(reply, Ready) for reply in replies)
    assert (printed(replies), status(replies)) == ("ok\n", "ok")


def test_kernel_that_cannot_boot_ends_in_a_fault(guest: Guest) -> None:
    guest.run(
        "import os; startup = os.environ['IPYTHONDIR'] + '/profile_default/startup'; os.makedirs(startup, exist_ok=True)"
    )
    guest.run("open(startup + '/0.py', 'w').write('import os; os.write(2, b\"boom\"); os._exit(1)')")
    guest.send(KillKernel(op=50))
    fault = guest.until(lambda reply: isinstance(reply, Fault))[-1]
    assert isinstance(fault, Fault)
    assert "3 kernels in a row" in fault.message
    assert guest.process.wait(timeout=5) == 3


def test_interrupt_ends_a_cell_and_keeps_the_state(guest: Guest) -> None:
    guest.run("a = 1")
    op = guest.start(
        "import time\ntry:\n  print('begun', flush=True); time.sleep(30)\nfinally:\n  print('cleanup')"
    )
    guest.says("begun")
    guest.send(Interrupt(op=op))
    replies = guest.finish(op)
    assert (printed(replies), errors(replies), status(replies)) == (
        "cleanup\n",
        ["KeyboardInterrupt"],
        "interrupted",
    )
    assert printed(guest.run("print(a)")) == "1\n"


def test_interrupt_ends_a_shell_command(guest: Guest) -> None:
    op = guest.start("!echo $$; exec sleep 31")
    line = guest.until(lambda reply: isinstance(reply, Stream) and "\n" in reply.text)[-1]
    guest.send(Interrupt(op=0))
    assert status(guest.finish(op)) == "interrupted"
    assert isinstance(line, Stream)
    assert gone(int(line.text))


def test_interrupt_sent_at_once_still_reaches_its_cell(guest: Guest) -> None:
    for _ in range(10):
        op = guest.start("import time; time.sleep(30)")
        guest.send(Interrupt(op=op))
        assert status(guest.finish(op)) == "interrupted"
    assert status(guest.run("1")) == "ok"


def test_interrupt_of_an_idle_kernel_or_another_cell_changes_nothing(guest: Guest) -> None:
    op = guest.start("a = 1")
    guest.finish(op)
    guest.send(Interrupt(op=0), Interrupt(op=op))
    op = guest.start("print(a)")
    guest.send(Interrupt(op=op + 1000))
    replies = guest.finish(op)
    assert (printed(replies), status(replies)) == ("1\n", "ok")


def test_interrupt_of_a_waiting_cell_withdraws_it(guest: Guest) -> None:
    first = guest.start("import time; time.sleep(30)")
    second = guest.start("print('never')")
    guest.send(Interrupt(op=second), Interrupt(op=first))
    assert status(guest.finish(second)) == "aborted"
    assert status(guest.finish(first)) == "interrupted"


def test_kernel_that_swallows_interrupts_is_killed_with_all_it_started(guest: Guest) -> None:
    op = guest.start(
        "import time, subprocess\n"
        "pids = [subprocess.Popen(['sleep', '300'], start_new_session=new).pid for new in (False, True)]\n"
        "print(*pids, flush=True)\n"
        "while True:\n  try:\n    print('turn', flush=True); time.sleep(30)\n  except KeyboardInterrupt: print('nope', flush=True)"
    )
    waiting = guest.start("print('never')")
    replies = guest.until(lambda reply: isinstance(reply, Stream) and "turn" in reply.text)
    session_child = int(printed(replies).split()[1])
    guest.send(Interrupt(op=op))
    guest.says("nope")
    guest.send(KillKernel(op=50))
    assert death(guest.finish(op)).signal == signal.SIGKILL
    assert status(guest.finish(waiting)) == "aborted"
    guest.ready()
    assert gone(session_child)
    assert printed(guest.run("print('anew')")) == "anew\n"
