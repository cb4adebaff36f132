"""The lines of one file become what is sent of them: parsed, joined to events, and counted."""

from typing import Any, Final

import pytest

from aeolus_sandbox.guest.logs.frames import Join, Tail
from aeolus_sandbox.guest.logs.lines import LEVELS, Block, LineFlag
from aeolus_sandbox.guest.logs.pipeline import Counts, FilePipeline
from aeolus_sandbox.guest.logs.selection import Selection
from tests.unit.logs.sent_lines import SentLine, sent_lines

CHRISTMAS_2023_S: Final = 1_703_500_000.0
SPRING_2023_S: Final = 1_680_000_000.0


class Lane:
    """One file on its way."""

    def __init__(self, **options: Any) -> None:
        request = Tail(1, [], [], **options)
        self.counts = Counts()
        self.pipeline = FilePipeline(request, Selection(request), self.counts)
        self.end = 0

    def take(self, *lines: bytes, start: int | None = None, **values: Any) -> list[SentLine]:
        begin = at = self.end if start is None else start
        ends = [at := at + len(line) + 1 for line in lines]
        self.end = at
        return sent_lines(self.pipeline.take(Block("/a.log", list(lines), begin, ends, **values)))

    def flush(self) -> list[SentLine]:
        return sent_lines(self.pipeline.flush())


def messages(lines: list[SentLine]) -> list[Any]:
    return [line.text.decode() if line.message is None else line.message for line in lines]


def test_a_json_object_stands_for_itself_and_all_else_is_text() -> None:
    lane = Lane(format="json")
    obj, text = lane.take(b' {"level":"warn","msg":"low"} ', b"plain")
    assert (obj.message, obj.level, obj.text) == (
        "low",
        LEVELS.index("warning"),
        b' {"level":"warn","msg":"low"} ',
    )
    assert obj.fields == {}
    [alone] = lane.take(b'{"msg":"m"}')
    assert (alone.text, alone.fields) == (b'{"msg":"m"}', None)
    assert (text.text, text.message) == (b"plain", None)
    assert (lane.counts.read, lane.counts.matched, lane.counts.dropped) == (3, 3, 0)


def test_what_is_no_utf8_is_flagged_and_stays_as_it_stands() -> None:
    [line] = Lane(format="json").take(b'{"msg":"a\xffb"}')
    assert line.flags == LineFlag.INVALID_UTF8
    assert (line.text, line.message) == (b'{"msg":"a\xffb"}', "a\ufffdb")


def test_what_was_known_of_a_line_before_it_was_parsed_stays_known() -> None:
    one, two = Lane(format="raw").take(b"a", b"b", flags={1: int(LineFlag.TRUNCATED)}, lengths={1: 999})
    assert (one.flags, one.length) == (0, None)
    assert (two.flags, two.length) == (LineFlag.TRUNCATED, 999)


def test_a_date_without_a_year_is_close_to_when_the_file_was_written() -> None:
    lane = Lane(format="syslog")
    [winter] = lane.take(b"<13>Jan  2 03:04:05 h a: m", modified_s=CHRISTMAS_2023_S)
    [spring] = lane.take(b"<13>Jan  2 03:04:05 h a: m", modified_s=SPRING_2023_S)
    assert winter.time_us is not None
    assert spring.time_us is not None
    assert winter.time_us - spring.time_us == 365 * 86_400 * 1_000_000


def test_lines_that_do_not_fit_are_counted_also_where_the_filter_leaves_them_out() -> None:
    lane = Lane(format="json", level=0)
    assert lane.take(b"plain", b'{"level":"info"}') != []
    assert (lane.counts.unparsed, lane.counts.dropped, lane.counts.matched) == (1, 1, 1)


def test_an_event_is_held_until_the_next_begins() -> None:
    lane = Lane(format="auto", join=Join())
    assert lane.take(b"ERROR boom", b"\tat one") == []
    held = [lane.pipeline.held_from]
    [event] = lane.take(b"\tat two", b"INFO next")
    assert event.message is not None
    assert event.message.endswith("boom\n\tat one\n\tat two")
    assert (event.text, event.start, event.end) == (b"ERROR boom\n\tat one\n\tat two", 0, 27)
    assert event.flags & LineFlag.JOINED
    held.append(lane.pipeline.held_from)
    assert messages(lane.flush()) == ["next"]
    assert [*held, lane.pipeline.held_from] == [0, 27, None]
    assert lane.flush() == []
    assert (lane.counts.read, lane.counts.matched) == (4, 2)


def test_the_fields_of_an_event_are_those_of_its_first_line() -> None:
    lane = Lane(format="json", join=Join())
    lane.take(b'{"level":"error","msg":"boom","n":7}', b"\tat one")
    [event] = lane.flush()
    assert (event.message, event.level) == ("boom\n\tat one", LEVELS.index("error"))
    assert event.fields["n"] == 7


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            b'{"log":"ERROR boom\\n","stream":"stderr","time":"2024-03-10T09:15:02.1Z"}',
            b'{"log":"\\tat one\\n","stream":"stderr","time":"2024-03-10T09:15:02.1Z"}',
        ),
        (
            b"2024-03-10T09:15:02.120000001Z stderr F ERROR boom",
            b"2024-03-10T09:15:02.120000002Z stderr F \tat one",
        ),
    ],
)
def test_an_event_in_a_containers_log_says_what_the_program_wrote(first: bytes, second: bytes) -> None:
    lane = Lane(format="auto", join=Join())
    lane.take(first, second)
    [event] = lane.flush()
    assert event.message is not None
    assert event.message.split("\n") == ["boom", "\tat one"]
    assert event.level == LEVELS.index("error")
    assert event.text == b"\n".join([first, second])


def test_a_pattern_is_looked_for_in_the_whole_event() -> None:
    lane = Lane(format="raw", join=Join(), pattern="at two")
    assert messages(lane.take(b"A", b"\tat one", b"B", b"\tat two", b"C")) == ["B\n\tat two"]
    assert lane.counts.dropped == 1


def test_a_block_from_elsewhere_does_not_go_on_with_what_is_held() -> None:
    lane = Lane(format="raw", join=Join())
    lane.take(b"ERROR boom")
    assert lane.pipeline.is_continued_by(Block("/a.log", [b"x"], 11, [13]))
    assert not lane.pipeline.is_continued_by(Block("/a.log", [b"x"], 0, [2]))
