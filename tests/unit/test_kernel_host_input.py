"""The kernel host and questions of a cell: passed on where somebody answers, ended at once where nobody does."""

import time
from pathlib import Path

from aeolus_sandbox.guest.frames import Execute, InputReply, InputRequest, Interrupt, Reply, Stream
from tests.unit.guest_process import LIMIT_S, Guest, errors, printed, status

OP = 1000


def ask(guest: Guest, code: str, *, op: int = OP, allow_stdin: bool = True) -> None:
    guest.send(Execute(op=op, code=code, allow_stdin=allow_stdin))


def until_question(guest: Guest) -> list[Reply]:
    return guest.until(lambda reply: isinstance(reply, InputRequest))


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_question_comes_after_what_was_printed_before_it(guest: Guest, tmp_path: Path) -> None:
    code = "for _ in range(50):\n        print('x' * 60_000, flush=True)"
    ask(
        guest,
        f"for i in range(3):\n    {code}\n    open(f'asks-{{i}}', 'w').close()\n    print(input(f'{{i}}? '))",
    )
    for number in range(3):
        wait_for(tmp_path / f"asks-{number}")  # nothing is read until then, and most of the output waits
        replies = until_question(guest)
        assert replies[-1] == InputRequest(op=OP, prompt=f"{number}? ")
        assert printed(replies).count("x") == 50 * 60_000
        guest.send(InputReply(op=OP, text=f"süß {number}"))
    assert printed(guest.finish(OP)) == "süß 2\n"


def test_password_is_marked(guest: Guest) -> None:
    ask(guest, "import getpass; print(len(getpass.getpass('secret: ')))")
    assert until_question(guest)[-1] == InputRequest(op=OP, prompt="secret: ", password=True)
    guest.send(InputReply(op=OP, text="12345"))
    assert printed(guest.finish(OP)) == "5\n"


def test_end_of_input_is_an_error_of_the_code(guest: Guest) -> None:
    ask(guest, "input()")
    until_question(guest)
    guest.send(InputReply(op=OP, text=None))
    assert errors(guest.finish(OP)) == ["EOFError"]


def test_answer_without_a_question_answers_none(guest: Guest) -> None:
    guest.send(InputReply(op=OP, text="too early"), InputReply(op=0, text="to nobody"))
    ask(guest, "print(input('first? '))")
    until_question(guest)
    guest.send(InputReply(op=7, text="to another"), InputReply(op=OP, text="right"))
    guest.send(InputReply(op=OP, text="too much"))
    assert printed(guest.finish(OP)) == "right\n"
    ask(guest, "print(input('second? '))", op=OP + 1)
    until_question(guest)
    guest.send(InputReply(op=OP + 1, text="fresh"))
    assert printed(guest.finish(OP + 1)) == "fresh\n"


def test_interrupt_ends_a_question_and_the_next_cell_runs(guest: Guest) -> None:
    ask(guest, "kept = 5; input('? ')")
    until_question(guest)
    guest.send(Interrupt(op=OP))
    assert status(guest.finish(OP)) == "interrupted"
    guest.send(InputReply(op=OP, text="late"))
    ask(guest, "print(kept, input())", op=OP + 1)
    until_question(guest)
    guest.send(InputReply(op=OP + 1, text="on"))
    assert printed(guest.finish(OP + 1)) == "5 on\n"


def test_question_that_nobody_may_answer_ends_at_once(guest: Guest) -> None:
    ask(guest, "input()", allow_stdin=False)
    assert errors(guest.finish(OP)) == ["StdinNotImplementedError"]
    # A kernel that asks without leave, as some do, would wait for ever.
    ask(guest, "get_ipython().kernel._allow_stdin = True; input()", op=OP + 1, allow_stdin=False)
    replies = guest.finish(OP + 1)
    assert errors(replies) == ["EOFError"]
    assert not any(isinstance(reply, InputRequest) for reply in replies)


def test_question_of_a_thread_that_was_left_running_ends_at_once(guest: Guest) -> None:
    ask(
        guest,
        "import threading\nend = threading.Event()\ndef late():\n    end.wait(20)\n    try:\n        input()\n"
        "    except EOFError:\n        print('end', flush=True)\nthreading.Thread(target=late).start()",
    )
    assert status(guest.finish(OP)) == "ok"
    replies = guest.run("end.set()")
    if "end" not in printed(replies):
        guest.until(lambda reply: isinstance(reply, Stream) and "end" in reply.text)


def test_question_that_makes_no_sense_is_still_answered(guest: Guest) -> None:
    contents = ("{}", "{'prompt': 5}", "{'prompt': 'x' * 10**6}", "{'prompt': '\\ud800', 'password': 'yes'}")
    for op, content in enumerate(contents, start=OP):
        code = (
            "k = get_ipython().kernel; parent = k.get_parent('shell')\n"
            "ident = k._get_shell_context_var(k._shell_parent_ident)\n"
            f"k.session.send(k.stdin_socket, 'input_request', {content}, parent, ident=ident)\n"
            "print(input('real? '))"
        )
        ask(guest, code, op=op)
        questions = [until_question(guest)[-1], until_question(guest)[-1]]
        assert all(isinstance(each, InputRequest) and len(each.prompt) <= 16 * 1024 for each in questions)
        guest.send(InputReply(op=op, text="a"), InputReply(op=op, text="b"))
        assert printed(guest.finish(op)) in {"a\n", "b\n"}
