"""The log tailer's guest program over real pipes: its protocol, what it passes on, and that no file can break it."""

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.guest.frames import Fault, Frame, encode_frame
from aeolus_sandbox.guest.logs.frames import (
    MAX_BATCH_BYTES,
    MAX_BATCH_LINES,
    MAX_LINE_BYTES,
    MAX_NOTICES,
    WINDOW_BYTES,
    FilePosition,
    Join,
    Lines,
    Notice,
    Reached,
    Room,
    StopTail,
    Tail,
    TailDone,
    TailOpened,
    TailPath,
    decode_log_reply,
)
from aeolus_sandbox.guest.logs.lines import LEVELS
from aeolus_sandbox.guest.logs.main import EXIT_FAULT, EXIT_MALFORMED, EXIT_OK, serve
from aeolus_sandbox.tools.log_tailer import LogChunk, LogFlag, replies
from aeolus_sandbox.tools.log_tailer.batches import LogCodec, batch_of

LIMIT_S: Final = 60.0
REPOSITORY: Final = Path(__file__).resolve().parents[3]
LOG: Final = "/logs/app.log"
TRACE: Final = "ERROR it broke\n\tat one\n\tat two\n"


@dataclass(frozen=True)
class Batch:
    """One `Lines` frame, with its lines as the host makes them."""

    head: Lines
    chunks: list[LogChunk]
    size: int
    """Its lines in bytes."""


Said = Batch | Reached | Notice | TailOpened | TailDone | Fault
Serve = Callable[[int, int], int]


class Guest:
    """A guest in a thread, as its host sees it."""

    def __init__(self, root: Path, run: Serve | None = None, *, gives_room: bool = True) -> None:
        """Start one whose `/host` is `root`."""
        self.code: int | None = None
        self.gives_room = gives_room
        self.taken_bytes = 0
        self._run = run or (lambda requests, answers: serve(requests, answers, root=str(root)))
        self._asked, self._requests = os.pipe()
        self._replies, self._answers = os.pipe()
        self._held, self._sequence = b"", 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.code = self._run(self._asked, self._answers)
        finally:
            os.close(self._asked)
            os.close(self._answers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close_requests()
        self.close_replies()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def close_requests(self) -> None:
        if self._requests >= 0:
            os.close(self._requests)
            self._requests = -1

    def close_replies(self) -> None:
        if self._replies >= 0:
            os.close(self._replies)
            self._replies = -1

    def send(self, *frames: Frame) -> None:
        self.send_bytes(b"".join(map(encode_frame, frames)))

    def send_bytes(self, data: bytes) -> None:
        os.write(self._requests, data)

    def next(self) -> Said | None:
        """Return what it says next; None: it has ended."""
        line = self._line()
        if line is None:
            return None
        reply = decode_log_reply(line)
        assert type(replies.decode_log_reply(line)).__name__ == type(reply).__name__
        if not isinstance(reply, Lines):
            return reply
        size = reply.size
        while len(self._held) < size:
            assert self._read(), "it ends within a batch"
        body, self._held = self._held[:size], self._held[size:]
        batch = batch_of(reply.path, body, count=reply.count, first=self._sequence + 1)
        self._sequence += reply.count
        self.taken_bytes += len(line) + 1 + size
        if self.gives_room:
            with suppress(BrokenPipeError):
                self.send(Room(op=1, taken_bytes=self.taken_bytes))
        return Batch(reply, list(LogCodec().decode_batch(batch.tag, batch.payload, 0)), size)

    def _line(self) -> bytes | None:
        while b"\n" not in self._held:
            if not self._read():
                return None
        line, _, self._held = self._held.partition(b"\n")
        return line

    def _read(self) -> bool:
        assert select.select([self._replies], [], [], LIMIT_S)[0], "it says nothing"
        data = os.read(self._replies, 1 << 20)
        self._held += data
        return bool(data)

    def until(self, wanted: Callable[[Said], object]) -> list[Said]:
        """Return what it says up to the first that is wanted."""
        said: list[Said] = []
        while not (said and wanted(said[-1])):
            reply = self.next()
            assert reply is not None, f"it ended after {said[-3:]}"
            said.append(reply)
        return said

    def rest(self) -> list[Said]:
        """Return what it says until it ends."""
        said: list[Said] = []
        while (reply := self.next()) is not None:
            said.append(reply)
        self._thread.join(LIMIT_S)
        return said


def tail(*paths: str, **options: Any) -> Tail:
    asked: dict[str, Any] = {
        "op": 1,
        "paths": [TailPath(path) for path in paths or (LOG,)],
        "mounts": ["/logs"],
    }
    return Tail(**(asked | {"format": "raw", "poll_s": 0.05} | options))


def read(root: Path, request: Tail) -> list[Said]:
    """Return all that is said of files that are not followed."""
    with Guest(root) as guest:
        guest.send(request)
        said = guest.rest()
    assert guest.code == EXIT_OK, said[-1]
    assert isinstance(said[0], TailOpened)
    return said


def chunks(said: list[Said]) -> list[LogChunk]:
    return [chunk for each in said if isinstance(each, Batch) for chunk in each.chunks]


def raws(said: list[Said]) -> list[str]:
    return [chunk.raw for chunk in chunks(said)]


def done(said: list[Said]) -> TailDone:
    assert isinstance(said[-1], TailDone), said[-1]
    return said[-1]


def positions(said: list[Said]) -> Iterator[tuple[int, FilePosition]]:
    """Yield the positions that were said, each with how many chunks came before it."""
    count = 0
    for each in said:
        if isinstance(each, Batch):
            count += len(each.chunks)
            yield count, each.head.position
        elif isinstance(each, Reached):
            yield count, each.position


def has(text: str) -> Callable[[Said], bool]:
    return lambda said: isinstance(said, Batch) and any(text in chunk.raw for chunk in said.chunks)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.fixture
def log(root: Path) -> Path:
    return root / "logs" / "app.log"


# The protocol.


def test_the_folders_come_first_then_lines_and_the_counts_last(root: Path, log: Path) -> None:
    log.write_bytes(b"one\ntwo\n")
    opened, batch, last = read(root, tail())
    status = (root / "logs").stat()
    assert isinstance(opened, TailOpened)
    assert isinstance(batch, Batch)
    assert isinstance(last, TailDone)
    assert msgspec.to_builtins(opened.mounts) == [
        {
            "path": "/logs",
            "device": status.st_dev,
            "inode": status.st_ino,
            "mode": status.st_mode,
            "owner": status.st_uid,
            "group": status.st_gid,
            "changed_ns": status.st_ctime_ns,
        }
    ]
    assert [(chunk.raw, chunk.offset, chunk.end_offset) for chunk in batch.chunks] == [
        ("one", 0, 4),
        ("two", 4, 8),
    ]
    assert batch.head.position.offset == 8
    assert (last.lines_read, last.lines_matched, last.bytes_read, last.files) == (2, 2, 8, [LOG])
    assert [(each.path, each.offset, each.inode) for each in last.positions] == [(LOG, 8, log.stat().st_ino)]


def test_a_mount_that_is_not_there_is_said_to_be_none(root: Path, log: Path) -> None:
    log.write_bytes(b"one\n")
    said = read(root, tail(mounts=["/logs", "/none"]))
    assert isinstance(said[0], TailOpened)
    assert [(each.device, each.inode) for each in said[0].mounts][1] == (0, 0)


def test_what_happens_to_a_file_once_the_folders_are_open_is_seen(root: Path, log: Path) -> None:
    log.write_bytes(b"old\n")
    with Guest(root) as guest:
        guest.send(tail(follow=True))
        guest.until(lambda said: isinstance(said, TailOpened))
        log.rename(log.with_name("app.log.1"))
        log.write_bytes(b"new\n")
        assert raws(guest.until(has("new"))) == ["old", "new"]


def test_it_stops_without_room_and_goes_on_with_it(root: Path, log: Path) -> None:
    line, count = b"x" * 99 + b"\n", 60_000
    log.write_bytes(line * count)
    with Guest(root, gives_room=False) as guest:
        guest.send(tail())
        guest.until(lambda _: guest.taken_bytes >= WINDOW_BYTES)
        guest.send(Room(op=1, taken_bytes=guest.taken_bytes))
        guest.until(lambda _: guest.taken_bytes >= 2 * WINDOW_BYTES)
        guest.send(StopTail(op=1))
        last = done(guest.until(lambda said: isinstance(said, TailDone)))
    assert guest.taken_bytes < 2 * WINDOW_BYTES + 2 * 1024 * 1024
    assert last.lines_read == last.lines_matched < count
    assert last.positions[0].offset == last.lines_read * len(line)


def test_it_follows_until_it_is_told_to_stop(root: Path, log: Path) -> None:
    log.write_bytes(b"one\n")
    with Guest(root) as guest:
        guest.send(tail(follow=True))
        guest.until(has("one"))
        with log.open("ab") as file:
            file.write(b"two\nnot ended")
        guest.until(has("two"))
        guest.send(StopTail(op=1))
        said = guest.rest()
    assert guest.code == EXIT_OK
    assert raws(said) == []
    assert [each.offset for each in done(said).positions] == [8]


@pytest.mark.parametrize("how", ["close_requests", "close_replies"])
def test_it_ends_when_the_host_is_gone(root: Path, log: Path, how: str) -> None:
    log.write_bytes(b"one\n")
    with Guest(root) as guest:
        guest.send(tail(follow=True))
        guest.until(has("one"))
        getattr(guest, how)()
        with log.open("ab") as file:
            file.write(b"two\n")
    assert guest.code == EXIT_OK


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\n",
        b'{"frame":"tail"}\n',
        b"[" * 100_000 + b"\n",
        encode_frame(Room(op=1, taken_bytes=1)),
        encode_frame(tail()) + encode_frame(StopTail(op=1)),
    ],
)
def test_a_malformed_request_is_a_fault_of_the_host(root: Path, log: Path, data: bytes) -> None:
    log.write_bytes(b"one\n")
    with Guest(root) as guest:
        guest.send_bytes(data)
        said = guest.rest()
    assert guest.code == EXIT_MALFORMED
    assert isinstance(said[-1], Fault)
    assert len(said[-1].message) <= 1000


def test_a_second_tail_is_malformed(root: Path, log: Path) -> None:
    log.write_bytes(b"one\n")
    with Guest(root) as guest:
        guest.send(tail(follow=True))
        guest.until(has("one"))
        guest.send(tail())
        assert isinstance(guest.rest()[-1], Fault)
    assert guest.code == EXIT_MALFORMED


@pytest.mark.parametrize("options", [{"zone": "Nowhere/None"}, {"pattern": "("}])
def test_what_it_cannot_do_is_told_as_a_fault(root: Path, log: Path, options: dict[str, Any]) -> None:
    log.write_bytes(b"one\n")
    with Guest(root) as guest:
        guest.send(tail(**options))
        said = guest.rest()
    assert guest.code == EXIT_FAULT
    assert isinstance(said[-1], Fault)


def test_notices_are_bounded_and_the_rest_counted(root: Path) -> None:
    said = read(root, tail(*(f"/logs/none-{n}" for n in range(MAX_NOTICES + 500))))
    assert sum(isinstance(each, Notice) for each in said) == MAX_NOTICES
    assert done(said).notices_left_out == 500


# What is passed on.

LEVELLED: Final = [
    '{"level":"debug","time":"2024-03-10T09:00:00Z","msg":"m0","user":{"id":7},"ok":true}',
    '{"level":"info","time":"2024-03-10T09:01:00Z","msg":"m1","user":{"id":8},"status":404}',
    '{"level":"error","time":"2024-03-10T09:02:00Z","msg":"m2","user.id":"7","status":"404"}',
    '{"msg":"m3","time":"2024-03-10T09:03:00Z"}',
    "m4 is none of it",
]
MINUTE_US: Final = 60_000_000
NINE_US: Final = 1_710_061_200_000_000


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, "01234"),
        ({"tail_lines": 2}, "34"),
        ({"tail_lines": 0}, ""),
        ({"level": LEVELS.index("info")}, "12"),
        ({"level": LEVELS.index("info"), "keeps_unknown_level": True}, "1234"),
        ({"since_us": NINE_US + MINUTE_US}, "1234"),
        ({"until_us": NINE_US + 2 * MINUTE_US}, "014"),
        ({"since_us": NINE_US + 1, "until_us": NINE_US + 3 * MINUTE_US}, "124"),
        ({"equals": {"status": "404"}}, "12"),
        ({"equals": {"user.id": "7"}}, "02"),
        ({"equals": {"ok": "true", "user.id": "7"}}, "0"),
        ({"equals": {"user": '{"id":8}'}}, "1"),
        ({"equals": {"none": ""}}, ""),
        ({"pattern": "m[0-2]"}, "012"),
        ({"pattern": "m", "exclude": "404"}, "034"),
        ({"pattern": "m", "exclude": "none", "level": LEVELS.index("debug"), "tail_lines": 4}, "12"),
    ],
)
def test_lines_are_passed_on_that_meet_all_that_was_asked(
    root: Path, log: Path, options: dict[str, Any], wanted: str
) -> None:
    log.write_text("".join(f"{line}\n" for line in LEVELLED))
    said = read(root, tail(format="json", **options))
    assert raws(said) == [LEVELLED[int(n)] for n in wanted]
    last = done(said)
    assert last.lines_matched == len(wanted)
    assert last.lines_read == last.lines_matched + last.lines_dropped


def test_unparsed_lines_are_passed_on_and_counted(root: Path, log: Path) -> None:
    lines = ['{"msg":"fine"}', "plain", "[1,2]", '{"cut', '{"msg":"fine again"}']
    log.write_text("".join(f"{line}\n" for line in lines))
    said = read(root, tail(format="json"))
    assert raws(said) == lines
    assert [LogFlag.UNPARSED in chunk.flags for chunk in chunks(said)] == [False, True, True, True, False]
    assert done(said).lines_unparsed == 3


def test_a_pattern_that_hangs_others_costs_nothing(root: Path, log: Path) -> None:
    line = "request completed without any problem at all by worker seventeen !"
    log.write_text(f"all fine\n{line}\nall fine again\n")
    began = time.process_time()
    said = read(root, tail(pattern=r"^(\w+\s?)+$"))
    assert time.process_time() - began < 5
    assert raws(said) == ["all fine", "all fine again"]
    assert done(said).lines_dropped == 1


# Events of several lines.


def test_an_event_is_given_once_nothing_more_has_come_for_its_wait(root: Path, log: Path) -> None:
    log.write_text(TRACE)
    with Guest(root) as guest:
        guest.send(tail(follow=True, join=Join(wait_s=0.05)))
        said = guest.until(has("ERROR"))
        assert raws(said) == [TRACE.rstrip("\n")]
        assert [LogFlag.JOINED in chunk.flags for chunk in chunks(said)] == [True]
        with log.open("a") as file:
            file.write("\tat three\n")
        assert raws(guest.until(has("three"))) == ["\tat three"]  # too late for its event, but not lost


def test_no_position_reaches_into_an_event_that_waits(root: Path, log: Path) -> None:
    log.write_text(f"INFO before\n{TRACE}")
    with Guest(root) as guest:
        guest.send(tail(follow=True, join=Join(wait_s=600)))
        said = guest.until(has("before"))
        assert [position.offset for _, position in positions(said)] == [len("INFO before\n")]
        guest.send(StopTail(op=1))
        said = guest.rest()
    assert raws(said) == [TRACE.rstrip("\n")]
    assert [position.offset for _, position in positions(said)] == [len(f"INFO before\n{TRACE}")]


def test_events_of_two_files_of_one_name_are_not_mixed_and_have_positions_of_their_own(
    root: Path, log: Path
) -> None:
    log.write_text(TRACE)
    old = log.stat().st_ino
    with Guest(root) as guest:
        guest.send(tail(follow=True, join=Join(wait_s=600)))
        guest.until(lambda said: isinstance(said, Reached))  # it has read it, and holds the event back
        log.rename(log.with_name("app.log.1"))
        log.write_text("\tof another\nlast\n")
        said = guest.until(has("another"))
        guest.send(StopTail(op=1))
        said += guest.rest()
    assert raws(said) == [TRACE.rstrip("\n"), "\tof another", "last"]
    for each in said:
        if isinstance(each, Batch):
            is_old = each.chunks[0].raw.startswith("ERROR")
            assert (each.head.position.inode == old) is is_old
            assert each.head.position.offset >= each.chunks[-1].end_offset


@pytest.mark.parametrize("join", [None, Join()])
def test_going_on_from_any_position_gives_the_rest_once(root: Path, log: Path, join: Join | None) -> None:
    log.write_text("".join(f"INFO {n}\n{TRACE if n % 7 == 0 else ''}" for n in range(3000)))
    said = read(root, tail(join=join))
    everything = [chunk.offset for chunk in chunks(said)]
    places = list(positions(said))
    assert len(places) > 3
    for count, position in places[:: max(1, len(places) // 5)]:
        rest = read(root, tail(join=join, cursor=[position]))
        assert [chunk.offset for chunk in chunks(rest)] == everything[count:]


# Whatever is in the files.


@pytest.mark.parametrize(
    ("form", "line", "omits"),
    [
        ("raw", b"\x01" * MAX_LINE_BYTES, False),
        ("structured", b"a=1 level=info msg=" + b"\x01" * (MAX_LINE_BYTES - 30), True),
        ("json", b'{"a":' * 50_000 + b"}" * 50_000, False),
        ("json", b'{"level":"info","msg":"' + b"\\u0001" * 170_000 + b'"}', False),
        ("auto", b"\xff" * MAX_LINE_BYTES, False),
    ],
)
def test_batches_are_bounded_whatever_the_lines_are(
    root: Path, log: Path, form: str, line: bytes, omits: bool
) -> None:
    log.write_bytes((line + b"\n") * 3 + b"a=1 level=info msg=after\n")
    said = read(root, tail(format=form, max_line_bytes=MAX_LINE_BYTES))
    assert raws(said) == [*[line.decode("utf-8", "replace")] * 3, "a=1 level=info msg=after"]
    assert [LogFlag.FIELDS_OMITTED in chunk.flags for chunk in chunks(said)] == [*[omits] * 3, False]
    assert all(each.size <= MAX_BATCH_BYTES for each in said if isinstance(each, Batch))


HOSTILE: Final = [
    b'{"frame":"tail_done","op":1}', b'["x",0,1]', b'{"msg":"\\ud800","level":{"a":[1]}}', b'{"n":1e999,"level":1e3}',
    b'{"n":123456789012345678901234567890,"msg":3}', b'{"a":NaN}', b"[" * 3000, b'{"a":' * 99 + b"1" + b"}" * 99,
    b'{"a":' * 500 + b"1" + b"}" * 500, b'{"level":"info","level":"error"}', b'{"msg":"\xff"}', b'\x00{"msg":"z"}\x00',
    b"\x1b[2J\x1b]0;t\x07", b"a\rb", b"", b"\r", b"\tat x", b"Caused by: y", b"key=\x00 b=\"open", b"<999>1 - - -",
    b"<14>1 - - - - - [a b=\"\\\"\"", b"2024-13-40T99:99:99Z x", b"Feb 30 25:61:61 h p: m", b"\xe2\x80\xa8",
    b'192.0.2.9 - - [99/Foo/0000:00:00:00 +9999] "-" 9 -', b"2024-03-10T09:15:02.1Z stdout P half",
    b'{"log":"part","stream":"stdout","time":"x"}', b'{"time":1e400,"ts":-1,"timestamp":[]}', b'{"":""} trailing',
]  # fmt: skip
FORMATS: Final = ("auto", "json", "syslog", "clf", "combined", "structured", "raw")


def expected(data: bytes, *, keeps_nuls: bool) -> str:
    """Return what must be given as raw of the bytes of one event."""
    *ended, last = data.split(b"\n")  # what has no end may go on after its carriage return
    lines = [line.removesuffix(b"\r") for line in ended] + [last] * (last != b"")
    kept = lines if keeps_nuls else [line.strip(b"\0") for line in lines]
    return b"\n".join(kept).decode("utf-8", "replace")


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(st.sampled_from(HOSTILE) | st.binary(max_size=60), max_size=25),
    form=st.sampled_from(FORMATS),
    join=st.sampled_from([None, Join(), Join(start="^<", max_lines=3)]),
    wanted=st.sampled_from([{}, {"equals": {"a": "1"}}, {"level": 2}, {"since_us": 0}, {"exclude": "\\x00"}]),
)
def test_no_file_breaks_a_frame_and_its_text_comes_as_it_is(
    lines: list[bytes], form: str, join: Join | None, wanted: dict[str, Any]
) -> None:
    # It begins as text does: what looks compressed is another matter.
    content = b"-\n" + b"\n".join(lines)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "logs" / "app.log"
        log.parent.mkdir()
        log.write_bytes(content)
        said = read(Path(folder), tail(format=form, join=join, **wanted))
        at = 0
        for chunk in chunks(said):
            assert chunk.offset >= at
            at = chunk.end_offset
            text = expected(content[chunk.offset : at], keeps_nuls=form == "raw")
            # Lines of nothing but zero bytes are left out of an event.
            assert chunk.raw.replace("\n", "") == text.replace("\n", "")
            assert isinstance(dict(chunk.fields), dict)
            assert LogChunk.model_validate_json(chunk.model_dump_json()).raw == chunk.raw
        for count, position in positions(said):
            assert all(chunk.offset >= position.offset for chunk in chunks(said)[count:])
    last = done(said)
    assert last.lines_matched == len(chunks(said))
    if not wanted and form == "raw":
        places = [(chunk.offset, chunk.end_offset) for chunk in chunks(said)]
        assert [start for start, _ in places] == [0, *(end for _, end in places[:-1])]
        assert places[-1][1] == len(content)


def test_truncated_lines_say_their_length_and_no_batch_has_too_many_lines(root: Path, log: Path) -> None:
    log.write_bytes(b"y" * 300 + b"\n" + b"z\n" * (2 * MAX_BATCH_LINES))
    said = read(root, tail(max_line_bytes=64))
    first = chunks(said)[0]
    assert (first.raw, first.length, first.flags) == ("y" * 64, 300, (LogFlag.TRUNCATED,))
    assert len(chunks(said)) == 1 + 2 * MAX_BATCH_LINES
    assert max(len(each.chunks) for each in said if isinstance(each, Batch)) <= MAX_BATCH_LINES


PROGRAM: Final = """
import sys
from pathlib import Path
from aeolus_sandbox.guest.logs.main import serve
code = serve(0, 1, root=sys.argv[1])
[peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(peak.split()[1], file=sys.stderr)
sys.exit(code)
"""


def peak_bytes(root: Path, request: Tail) -> int:
    """Return the most memory that a guest in a process of its own has had."""
    peaks: list[int] = []

    def run(requests: int, answers: int) -> int:
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(root)],
            stdin=requests,
            stdout=answers,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            cwd=REPOSITORY,
            check=False,
        )
        peaks.append(int(ended.stderr) * 1024)
        return ended.returncode

    with Guest(root, run) as guest:
        guest.send(request)
        while guest.next() is not None:
            pass
    assert guest.code == EXIT_OK
    return peaks[0]


def test_memory_is_flat_however_large_a_file_is(root: Path, log: Path) -> None:
    lines = "".join(
        f'{{"level":"info","time":"2024-03-10T09:15:{n % 60:02}Z","msg":"request {n} served"}}\n'
        for n in range(20_000)
    )
    log.write_text(lines)
    small = peak_bytes(root, tail(format="json"))
    log.write_text(lines * 20)
    assert peak_bytes(root, tail(format="json")) < small + 16 * 1024 * 1024
