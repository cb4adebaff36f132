"""Whatever chunk the reader took last, the cursor after it leads to the very next line of every file."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.tools.log_tailer import LogCursor, LogPosition
from aeolus_sandbox.tools.log_tailer import positions as positions_module
from aeolus_sandbox.tools.log_tailer.positions import ReadPositions, cursor_of
from aeolus_sandbox.tools.log_tailer.replies import Position


def at(inode: int, offset: int, **values: Any) -> Position:
    return Position(path=f"/f{inode}", device=1, inode=inode, offset=offset, **values)


def offsets(positions: list[Position]) -> dict[int, int]:
    return {position.inode: position.offset for position in positions}


steps = st.lists(
    st.tuples(
        st.sampled_from(["lines", "reached", "notice"]),
        st.integers(1, 3),
        st.integers(1, 4),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(steps=steps, data=st.data())
def test_after_any_chunk_nothing_is_lost_and_nothing_comes_twice(
    steps: list[Any], data: st.DataObject
) -> None:
    """A line is ten bytes; after those passed on, a batch may go on over some that were left out."""
    positions = ReadPositions(LogCursor())
    ends: dict[int, int] = {}
    chunks: list[tuple[int, int, dict[int, tuple[int, int]]]] = []
    sure: dict[int, tuple[int, int]] = {}
    for kind, inode, count, left_out in steps:
        end = ends.get(inode, 0)
        if kind == "notice":
            chunks.append((len(chunks) + 1, 0, dict(sure)))
            positions.skip(last=len(chunks))
            continue
        for _ in range(count if kind == "lines" else 0):
            end += 10
            # Where to go on: no earlier than after this line, no later than where the next line begins.
            sure[inode] = (end, end)
            chunks.append((len(chunks) + 1, end, dict(sure)))
        end += 10 * left_out
        sure[inode] = (sure.get(inode, (0, 0))[0], end)
        if chunks:
            number, chunk_end, known = chunks[-1]
            chunks[-1] = (number, chunk_end, known | {inode: sure[inode]})
        ends[inode] = end
        positions.note(at(inode, end), last=len(chunks))
    assert offsets(positions.all()) == ends
    taken = sorted(data.draw(st.sets(st.integers(0, max(0, len(chunks) - 1)))))
    for index in taken if chunks else []:
        number, chunk_end, known = chunks[index]
        reached = offsets(positions.after(number, chunk_end))
        for inode, (least, most) in known.items():
            assert least <= reached.get(inode, 0) <= most


def test_a_file_keeps_its_place_when_it_is_renamed() -> None:
    positions = ReadPositions(LogCursor())
    positions.note(at(1, 10), last=1)
    positions.note(Position(path="/f1.1", device=1, inode=1, offset=20, done=True), last=2)
    positions.note(at(2, 5), last=3)
    assert [(each.path, each.offset, each.done) for each in positions.after(3, 5)] == [
        ("/f1.1", 20, True),
        ("/f2", 5, False),
    ]


def test_a_file_that_was_not_read_to_its_end_is_not_done() -> None:
    positions = ReadPositions(LogCursor())
    positions.note(at(1, 30, done=True), last=3)
    assert [(each.offset, each.done) for each in positions.after(2, 20)] == [(20, False)]
    assert [(each.offset, each.done) for each in positions.after(3, 30)] == [(30, True)]


def test_a_truncated_file_begins_anew_only_after_its_old_lines() -> None:
    positions = ReadPositions(LogCursor())
    positions.note(at(1, 5000, head_hash="aa"), last=10)
    positions.note(at(1, 10, head_hash="bb"), last=11)
    assert [(each.offset, each.head_hash) for each in positions.after(10, 5000)] == [(5000, "aa")]
    assert [(each.offset, each.head_hash) for each in positions.after(11, 10)] == [(10, "bb")]


def test_where_it_began_stays_for_files_that_are_not_read_again() -> None:
    start = LogCursor(positions=(LogPosition(path="/f9", device=1, inode=9, offset=77),))
    positions = ReadPositions(start)
    positions.note(at(1, 10), last=1)
    assert offsets(positions.after(1, 10)) == {9: 77, 1: 10}
    assert cursor_of(ReadPositions(start).all()) == start


HEAD: dict[str, Any] = {"head_bytes": 256, "head_hash": "aa"}


def test_position_of_a_file_that_went_on_as_its_gzip_is_replaced_in_its_place() -> None:
    start = LogCursor(
        positions=(
            LogPosition(path="/logs/app.log", device=1, inode=10, offset=2000, **HEAD),
            LogPosition(path="/logs/app.log", device=1, inode=11, offset=5),
        )
    )
    positions = ReadPositions(start)
    position = Position(path="/logs/app.log", device=1, inode=77, offset=5000, replaces=(1, 10), **HEAD)
    positions.note(position, last=5)
    assert [(each.inode, each.offset) for each in positions.after(3, 3000)] == [(77, 3000), (11, 5)]
    assert [(each.inode, each.offset) for each in positions.all()] == [(77, 5000), (11, 5)]
    assert [(each.inode, each.offset) for each in positions.after(5, 5000)] == [(77, 5000), (11, 5)]
    assert [each.inode for each in cursor_of([position]).positions] == [77]


def test_position_of_another_file_with_the_inode_of_a_replaced_one_stays() -> None:
    positions = ReadPositions(LogCursor())
    positions.note(at(10, 40, head_bytes=40, head_hash="bb"), last=1)
    positions.note(at(77, 5000, replaces=(1, 10), head_bytes=40, head_hash="aa"), last=2)
    assert offsets(positions.after(2, 5000)) == {10: 40, 77: 5000}


def test_files_that_were_done_with_are_forgotten_oldest_first(monkeypatch: Any) -> None:
    monkeypatch.setattr(positions_module, "MAX_DONE", 5)
    positions = ReadPositions(LogCursor())
    positions.note(Position(path="/live", device=1, inode=5000, offset=3), last=1)
    for number in range(1, 1001):
        positions.note(Position(path="/f", device=1, inode=number, offset=number, done=True), last=1 + number)
    kept = list(offsets(positions.after(1001, 1000)))
    assert kept[0] == 5000
    assert 5 <= len(kept) - 1 <= 20
    assert kept[1:] == list(range(1001 - len(kept[1:]), 1001))


def test_files_of_many_names_that_were_done_with_are_all_kept(monkeypatch: Any) -> None:
    monkeypatch.setattr(positions_module, "MAX_DONE", 5)
    positions = ReadPositions(LogCursor())
    for number in range(1, 1001):
        positions.note(at(number, number, done=True), last=number)
    assert len(positions.after(1000, 1000)) == 1000


def test_a_reader_that_never_comes_costs_a_bounded_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr(positions_module, "MAX_PENDING", 5)
    positions = ReadPositions(LogCursor())
    for number in range(1, 1001):
        positions.note(at(number % 2, number), last=number)
    assert len(positions._pending) <= 5
    assert offsets(positions.all()) == {0: 1000, 1: 999}
