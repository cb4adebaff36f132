"""The kernel host with a real ipykernel: what cells give, and how the guest ends."""

import base64
import time
from pathlib import Path

import pytest

from aeolus_sandbox.guest.frames import (
    MAX_TEXT_CHARACTERS,
    Display,
    Error,
    Fault,
    Result,
    Shutdown,
    Stream,
    WriteFile,
)
from tests.unit.guest_process import Guest, errors, gone, printed, status


def test_kernel_introduces_itself(booting: Guest) -> None:
    ready = booting.ready()
    assert (ready.protocol, ready.language) == (1, "python")
    assert ready.kernel.startswith("ipython ")


def test_cell_gives_text_value_and_done(guest: Guest) -> None:
    replies = guest.run("import sys; print('out'); print('err', file=sys.stderr); 6 * 7")
    assert (printed(replies), printed(replies, "stderr"), status(replies)) == ("out\n", "err\n", "ok")
    results = [reply for reply in replies if isinstance(reply, Result)]
    assert [result.data["text/plain"] for result in results] == ["42"]


def test_output_arrives_while_the_cell_runs(guest: Guest) -> None:
    op = guest.start("import os; print('first', flush=True)\nwhile not os.path.exists('go'): pass")
    guest.says("first")
    guest.send(WriteFile(op=99, path="go", data=b"", first=True, last=True))
    assert status(guest.finish(op)) == "ok"


def test_display_update_and_rich_values(guest: Guest) -> None:
    replies = guest.run(
        "from IPython.display import display, JSON\n"
        "handle = display('one', display_id='me')\nhandle.update('two')\ndisplay(JSON({'a': [1, None]}))"
    )
    displays = [reply for reply in replies if isinstance(reply, Display)]
    assert [(d.display_id, d.update) for d in displays] == [("me", False), ("me", True), (None, False)]
    assert displays[2].data["application/json"] == {"a": [1, None]}


@pytest.mark.slow
def test_first_cell_output_is_never_lost(tmp_path: Path) -> None:
    for _ in range(30):
        guest = Guest(tmp_path)
        try:
            assert printed(guest.finish(guest.start("print('first')"))) == "first\n"
            assert guest.end() == 0
        finally:
            guest.close()


def test_cell_queued_behind_a_failing_one_runs(guest: Guest) -> None:
    first, second = guest.start("1/0"), guest.start("print('second')")
    assert errors(guest.finish(first)) == ["ZeroDivisionError"]
    replies = guest.finish(second)
    assert (printed(replies), status(replies)) == ("second\n", "ok")


def test_input_fails_at_once_and_the_session_lives(guest: Guest) -> None:
    replies = guest.run("n = input('how many? ')")
    assert (errors(replies), status(replies)) == (["StdinNotImplementedError"], "error")
    assert printed(guest.run("print('next')")) == "next\n"


def test_late_output_of_a_thread_is_neither_lost_nor_doubled(guest: Guest) -> None:
    first = guest.start(
        "import threading, time, os\n"
        "def late():\n"
        "  for n in range(3):\n"
        "    time.sleep(.1); print('bg', n)\n"
        "thread = threading.Thread(target=late); thread.start(); print('main done')"
    )
    replies = guest.finish(first)
    assert "main done\n" in printed(replies)
    second = guest.start("thread.join(); print('second cell')")
    replies += guest.finish(second)
    assert "second cell\n" in printed(replies, op=second)
    assert [printed(replies).count(f"bg {n}\n") for n in range(3)] == [1, 1, 1]


def test_text_that_is_not_utf8_arrives_replaced(guest: Guest) -> None:
    assert printed(guest.run("print('a\\ud800b')")) == "a\ufffdb\n"
    assert printed(guest.run("print('n\\x00l')")) == "n\0l\n"
    # ipykernel reads descriptor 1 in a thread of its own, so that the bytes may come with the next cell.
    replies = guest.run("import os; os.write(1, b'caf\\xe9\\n')")
    replies += guest.run("import sys, time; time.sleep(.2); sys.stdout.flush()")
    assert printed(replies) == "caf\ufffd\n"
    replies = guest.run("raise ValueError('a\\ud800b')")
    assert [reply.value for reply in replies if isinstance(reply, Error)] == ["a\ufffdb"]
    replies = guest.run("from IPython.display import display; display({'text/x': 'a\\udfffb'}, raw=True)")
    assert [reply.data for reply in replies if isinstance(reply, Display)] == [{"text/x": "a\ufffdb"}]
    assert printed(guest.run("print('still here')")) == "still here\n"


def test_one_huge_line_arrives_whole_in_bounded_pieces(guest: Guest) -> None:
    replies = guest.run("print('x' * 5_000_000, end='')")
    texts = [reply.text for reply in replies if isinstance(reply, Stream)]
    assert sum(map(len, texts)) == 5_000_000
    assert max(map(len, texts)) <= MAX_TEXT_CHARACTERS


def test_many_small_prints_arrive_in_order(guest: Guest) -> None:
    replies = guest.run("for n in range(20_000): print(n)")
    assert printed(replies).split() == [str(n) for n in range(20_000)]


def test_more_displays_than_the_queues_hold_all_arrive(guest: Guest, tmp_path: Path) -> None:
    op = guest.start(
        "from IPython.display import display\n"
        "for n in range(6000): display({'text/n': str(n), 'text/x': 'x' * 2000}, raw=True)\n"
        "open('all said', 'w')"
    )
    while not (tmp_path / "all said").exists():  # the host does not read: the pipe and every queue fill
        assert guest.process.poll() is None
    replies = guest.finish(op)
    numbers = [reply.data["text/n"] for reply in replies if isinstance(reply, Display)]
    assert numbers == [str(n) for n in range(6000)]


def test_oversized_and_deep_entries_are_named_not_dropped(guest: Guest) -> None:
    replies = guest.run(
        "from IPython.display import display\n"
        "deep = []\nfor _ in range(200): deep = [deep]\n"
        "display({'image/png': 'A' * 25_000_000, 'text/html': 'kept', 'text/plain': 'p'}, raw=True)\n"
        "display({'application/json': deep}, raw=True)"
    )
    large, deep = [reply.data for reply in replies if isinstance(reply, Display)]
    assert set(large) == {"text/html", "text/plain"}
    assert "image/png left out: 23.8 MiB" in large["text/plain"]
    assert set(deep) == {"text/plain"}
    assert "application/json left out" in deep["text/plain"]
    assert status(replies) == "ok"


def test_hostile_messages_on_the_output_channel_do_not_stop_the_guest(guest: Guest) -> None:
    replies = guest.run(
        "kernel = get_ipython().kernel; send = kernel.iopub_socket.send_multipart\n"
        "send([b'x']); send([b'<IDS|MSG>', b'no']); send([b'<IDS|MSG>'] + [b'{}'] * 5)\n"
        "parent = kernel.get_parent()\n"
        "for kind, content in (('stream', {'name': 1, 'text': []}), ('display_data', {'data': [1]}), ('status', {'execution_state': []}), ('', {})):\n"
        "  kernel.session.send(kernel.iopub_socket, kind, content, parent=parent)\n"
        "print('alive')"
    )
    assert "alive\n" in printed(replies)
    assert "left out" in printed(replies, "stderr")
    assert status(replies) == "ok"


def test_kernel_finds_nothing_of_the_guest(guest: Guest) -> None:
    replies = guest.run(
        "import sys, os\nprint('PYTHONPATH' in os.environ, [p for p in sys.path if 'guest' in p])\n"
        "try:\n  import kernel_host\nexcept ImportError: print('none')\n"
        "print(os.getcwd() == os.environ['HOME'], os.getpgid(0) == os.getpid() == os.getsid(0))\n"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    assert printed(replies).split("\n")[:4] == ["False []", "none", "True True", "1000"]


def test_end_of_input_kills_the_kernel_and_its_children(guest: Guest) -> None:
    op = guest.start(
        "import os, subprocess, time; child = subprocess.Popen(['sleep', '300'])\n"
        "print(os.getpid(), child.pid, os.environ['IPYTHONDIR'], flush=True); time.sleep(300)"
    )
    line = guest.until(lambda reply: isinstance(reply, Stream))[-1]
    assert isinstance(line, Stream)
    assert line.op == op
    kernel, child, folder = line.text.split()
    began = time.monotonic()
    assert guest.end() == 0
    assert time.monotonic() - began < 1
    assert gone(int(kernel))
    assert gone(int(child))
    assert not Path(folder).parent.exists()


def test_shutdown_ends_the_guest_while_it_boots(booting: Guest) -> None:
    booting.send(Shutdown())
    assert booting.process.wait(timeout=3) == 0


@pytest.mark.parametrize("line", [b"not json\n", b'{"frame":"reboot"}\n', b'{"frame":"execute","op":1}\n'])
def test_malformed_request_is_a_fault(booting: Guest, line: bytes) -> None:
    booting.send_bytes(line)
    assert isinstance(booting.until(lambda reply: isinstance(reply, Fault))[-1], Fault)
    assert booting.process.wait(timeout=3) == 2
    assert booting.next() is None


def test_guest_that_is_not_read_still_ends_at_end_of_input(guest: Guest) -> None:
    guest.start("while True: print('x' * 10_000)")
    guest.says("x")
    assert guest.end() == 0


def test_host_that_closes_the_output_ends_the_guest(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    try:
        guest.ready()
        assert guest.process.stdout
        guest.process.stdout.close()
        guest.start("print('to nobody')")
        assert guest.process.wait(timeout=5) == 0
    finally:
        guest.close()


def test_only_frames_appear_on_the_output(guest: Guest) -> None:
    text = base64.b64encode(b"frame").decode()
    replies = guest.run(f"import os; os.system('echo {text}'); os.write(1, b'raw\\n'); print('done')")
    assert status(replies) == "ok"  # every line was a frame: anything else would have raised FrameError
