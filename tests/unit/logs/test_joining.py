"""Stack traces and other texts of several lines become one event, and no line is lost or moved."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.frames import Join
from aeolus_sandbox.guest.logs.joining import Joiner
from aeolus_sandbox.guest.logs.patterns import compile_pattern


def events_of(text: str, joiner: Joiner | None = None) -> list[str]:
    return joined(text.encode().split(b"\n"), joiner or Joiner(Join()))


def joined(lines: list[bytes], joiner: Joiner) -> list[str]:
    events: list[list[bytes]] = []
    for line in lines:
        if joiner.continues(line):
            events[-1].append(line)
        else:
            events.append([line])
    return [b"\n".join(event).decode("utf-8", "replace") for event in events]


JAVA = """\
2024-03-10 09:15:02,120 [main] ERROR com.example.Till - cannot pay
com.example.PaymentException: declined
	at com.example.Till.pay(Till.java:42)
	at com.example.Main.main(Main.java:7)
Caused by: java.net.SocketTimeoutException: timed out
	at java.base/java.net.Socket.connect(Socket.java:600)
	... 12 more
Caused by: java.io.IOException: closed
	... 13 common frames omitted"""

PYTHON = """\
2024-03-10 09:15:02,120 ERROR app.db: cannot save
Traceback (most recent call last):
  File "/srv/app/db.py", line 12, in save
    row = rows[key]
          ~~~~^^^^^
KeyError: 'total'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/app/web.py", line 3, in handle
    save()
app.db.SaveError: no such key"""

PYTHON_GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/srv/app/jobs.py", line 3, in run
  | ExceptionGroup: two jobs failed (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +------------------------------------"""

GO = """\
panic: runtime error: index out of range [3] with length 2 [recovered]
	panic: runtime error: index out of range [3] with length 2

goroutine 1 [running]:
main.(*Till).pay(0xc000010000, {0x4a1b20, 0x3})
	/srv/app/till.go:42 +0x1d
main.main()
	/srv/app/main.go:7 +0x25
created by main.serve in goroutine 1
	/srv/app/main.go:9 +0x40
exit status 2"""

NODE = """\
/srv/app/till.js:42
    throw new TypeError("no total");
    ^

TypeError: no total
    at pay (/srv/app/till.js:42:11)
    at Object.<anonymous> (/srv/app/main.js:3:1) {
  code: 'E_TOTAL'
}

Node.js v20.11.1"""

DOTNET = """\
Unhandled exception. System.InvalidOperationException: no total
 ---> System.IO.IOException: closed
   at Till.Read() in /srv/app/Till.cs:line 12
   --- End of inner exception stack trace ---
   at Till.Pay() in /srv/app/Till.cs:line 42
--- End of stack trace from previous location ---
   at Main.Run()"""

RUBY = """\
/srv/app/till.rb:42:in `pay': no total (RuntimeError)
	from /srv/app/main.rb:7:in `each'
	from /srv/app/main.rb:7:in `<main>'"""

RAILS = """\
F, [2024-03-10T09:15:02.120123 #4711] FATAL -- :
\x20\x20
app/models/till.rb:42:in `pay'
app/controllers/tills_controller.rb:7:in `create'"""

STAMP = "2024-03-10T09:15:02.120123456Z"
ZAP = """\
2024-03-10T09:15:02.150Z\tERROR\tapp/till.go:9\tcannot pay
shop.example.net/app/till.(*Till).pay
\t/srv/app/till.go:42
main.main
\t/srv/app/main.go:7"""

TRACES = [ZAP, JAVA, PYTHON, PYTHON_GROUP, GO, NODE, DOTNET, RUBY, RAILS]


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.split("\n")[0][:30])
def test_a_stack_trace_is_one_event_and_what_surrounds_it_is_not_of_it(trace: str) -> None:
    before = "2024-03-10 09:15:01,000 INFO app: before"
    after = "2024-03-10 09:15:03,000 INFO app: after"
    if trace is PYTHON_GROUP:  # indented as a whole: it goes with the line that logs it
        assert events_of(f"{before}\n{trace}\n{after}") == [f"{before}\n{trace}", after]
    else:
        assert events_of(f"{before}\n{trace}\n{after}\n{trace}") == [before, trace, after, trace]


def test_a_traceback_of_its_own_is_one_event() -> None:
    trace = PYTHON.partition("\n")[2]
    assert events_of(f"{trace}\nnext line") == [trace, "next line"]


def test_two_errors_in_a_row_are_two_events() -> None:
    error = "java.lang.IllegalStateException: bad\n\tat com.example.Main.main(Main.java:7)"
    assert events_of(f"{error}\n{error}") == [error, error]


def test_errors_of_one_line_are_not_joined() -> None:
    assert events_of("shop.example.net\nmain.main") == ["shop.example.net", "main.main"]
    assert events_of("Error: one\nError: two\nTypeError: three") == [
        "Error: one",
        "Error: two",
        "TypeError: three",
    ]


def test_plain_lines_and_blank_lines_between_them_are_events_of_their_own() -> None:
    lines = ["one", "", "two (three)", "main.go started", "", "", "exit status 2", "Node.js v20"]
    assert events_of("\n".join(lines)) == lines


def test_what_looks_like_an_error_after_an_empty_line_is_an_event_of_its_own() -> None:
    assert events_of("head\n  detail\n\nWarning: low disk") == ["head\n  detail\n", "Warning: low disk"]


def test_indented_lines_go_on_with_the_line_before() -> None:
    assert events_of("GET /a\n  status: 200\n\tbytes: 5\nGET /b\n  status: 404") == [
        "GET /a\n  status: 200\n\tbytes: 5",
        "GET /b\n  status: 404",
    ]


def test_a_value_over_several_lines_ends_with_its_bracket() -> None:
    assert events_of('{\n  "a": 1\n}\n{\n  "b": [\n  ]\n}') == ['{\n  "a": 1\n}', '{\n  "b": [\n  ]\n}']


def test_the_first_line_begins_an_event_whatever_it_is() -> None:
    assert events_of("\tat com.example.Main.main(Main.java:7)\n\tat x") == [
        "\tat com.example.Main.main(Main.java:7)\n\tat x"
    ]


def test_an_event_ends_at_its_most_lines_and_the_rest_is_another() -> None:
    joiner = Joiner(Join(max_lines=3))
    assert events_of("head\n 1\n 2\n 3\n 4\n 5\nnext", joiner) == ["head\n 1\n 2", " 3\n 4\n 5", "next"]


def test_an_event_ends_at_its_most_bytes() -> None:
    joiner = Joiner(Join(), max_bytes=10)
    assert events_of("head\n 12\n 3\nlonger than ten\n 4", joiner) == [
        "head\n 12",
        " 3",
        "longer than ten",
        " 4",
    ]


def test_a_start_pattern_decides_alone() -> None:
    joiner = Joiner(Join(start=r"^\[\d+\]"), compile_pattern(r"^\[\d+\]").search)
    text = "lost\n[1] one\nmore\n\n  more\n[2] two\n[3] three\nTraceback (most recent call last):"
    assert events_of(text, joiner) == [
        "lost",
        "[1] one\nmore\n\n  more",
        "[2] two",
        "[3] three\nTraceback (most recent call last):",
    ]


def test_another_file_begins_with_an_event() -> None:
    joiner = Joiner(Join())
    assert not joiner.continues(b"head")
    joiner.reset()
    assert not joiner.continues(b"  tail of a line that was rotated away")


@pytest.mark.parametrize("trace", [JAVA, PYTHON, GO], ids=["java", "python", "go"])
def test_a_trace_inside_the_lines_of_a_container_is_one_event(trace: str) -> None:
    cri = [f"{STAMP} stderr F {line}" for line in trace.split("\n")]
    docker = [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": STAMP}, separators=(",", ":"))
        for line in trace.split("\n")
    ]
    for lines in (cri, docker):
        after = lines[0].replace(trace.split("\n")[0], "all fine")
        assert events_of("\n".join([*lines, after])) == ["\n".join(lines), after]


def test_the_line_that_ends_a_piece_is_never_joined_so_that_its_parser_sees_it() -> None:
    lines = [
        "2024-03-10T09:15:02.120123456Z stdout P first",
        "2024-03-10T09:15:02.120123456Z stdout F   half",
        "2024-03-10T09:15:02.120123456Z stdout F   indented",
    ]
    assert events_of("\n".join(lines)) == [lines[0], f"{lines[1]}\n{lines[2]}"]


pieces = st.sampled_from([piece.encode() for trace in TRACES for piece in trace.split("\n")])
lines_of_any_kind = st.lists(
    pieces | st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"")), max_size=60
)


@given(
    lines=lines_of_any_kind,
    max_lines=st.integers(1, 8),
    max_bytes=st.integers(1, 300),
    patterned=st.booleans(),
)
def test_no_line_is_lost_or_moved_and_no_event_is_over_its_bounds(
    lines: list[bytes], max_lines: int, max_bytes: int, patterned: bool
) -> None:
    joiner = Joiner(
        Join(max_lines=max_lines),
        compile_pattern("^[a-z]").search if patterned else None,
        max_bytes=max_bytes,
    )
    events: list[list[bytes]] = []
    for line in lines:
        if joiner.continues(line):
            events[-1].append(line)
        else:
            events.append([line])
    assert [line for event in events for line in event] == lines
    for event in events:
        assert len(event) <= max_lines
        assert len(event) == 1 or sum(len(line) + 1 for line in event) <= max_bytes


def test_a_start_pattern_sees_the_whole_line() -> None:
    lines = ["x" * 1000 + " begin", "y" * 1000 + " more", "z" * 1000 + " begin"]
    joiner = Joiner(Join(start="begin$"), compile_pattern("begin$").search)
    assert events_of("\n".join(lines), joiner) == [f"{lines[0]}\n{lines[1]}", lines[2]]
