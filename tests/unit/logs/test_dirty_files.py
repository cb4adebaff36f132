"""Files that are not what a log should be: half lines, huge lines, zero bytes, marks."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.guest.logs.lines import LineFlag
from aeolus_sandbox.guest.logs.sources.splitting import LineSplitter
from tests.unit.logs.writers import Following, Log


def test_half_line_waits_for_its_end(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with Following(tmp_path, "/logs/app.log", max_line_bytes=1000) as tail:
        log.append(b'{"level":"info","m":"par')
        assert tail.wait(2) == []
        log.append(b't two"}\n' + b"x" * 3_000_000 + b'\n{"m":"caf\xc3')
        assert tail.look() == ['{"level":"info","m":"part two"}', "x" * 1000]
        assert tail.blocks[-1].lengths[len(tail.blocks[-1].lines) - 1] == 3_000_000
        assert tail.blocks[-1].flags[len(tail.blocks[-1].lines) - 1] == LineFlag.TRUNCATED
        log.append(b'\xa9"}\ntail-without-newline')
        assert tail.look() == ['{"m":"café"}']
        assert tail.wait(5) == []


def test_last_line_without_end_is_given_when_not_following(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(b"whole\ntail-without-newline")
    with Following(tmp_path, "/logs/app.log", follow=False) as tail:
        assert tail.read() == ["whole", "tail-without-newline"]
        assert tail.blocks[-1].flags == {0: LineFlag.INCOMPLETE}
        assert tail.files.is_finished
        assert tail.files.positions()[0].offset == log.path.stat().st_size


def test_huge_line_takes_constant_memory(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with log.path.open("wb") as file:
        for _ in range(100):
            file.write(b"y" * 1_000_000)
        file.write(b"\nafter\n")
    with Following(tmp_path, "/logs/app.log", follow=False) as tail:
        tracemalloc.start()
        lines = tail.read()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [len(line) for line in lines] == [64 * 1024, 5]
    assert tail.blocks[0].lengths == {0: 100_000_000}
    assert peak < 4_000_000


def test_runs_of_zero_bytes_are_left_out_and_told(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.append(b'{"m":"one"}\n' + bytes(4096) + b'{"m":"two"}\n\0\0\n{"m":"three"}\nab\0cd\n\n')
    with Following(tmp_path, "/logs/app.log", follow=False) as tail:
        assert tail.read() == ['{"m":"one"}', '{"m":"two"}', '{"m":"three"}', "ab\0cd", ""]
        assert tail.blocks[0].flags == {1: LineFlag.NULS_REMOVED}
        assert [(notice.count, notice.offset) for notice in tail.told("nuls")] == [(4098, 12)]
        assert tail.blocks[-1].ends[-1] == log.path.stat().st_size


def test_raw_format_keeps_zero_bytes(tmp_path: Path) -> None:
    Log(tmp_path).append(b"ab\0cd\n\0x\n")
    with Following(tmp_path, "/logs/app.log", follow=False, format="raw") as tail:
        assert tail.read() == ["ab\0cd", "\0x"]


def test_writer_that_goes_on_at_its_old_offset_after_a_truncation(tmp_path: Path) -> None:
    log = Log(tmp_path)
    with log.path.open("wb", buffering=0) as writer, Following(tmp_path, "/logs/app.log") as tail:
        writer.write(b"z" * 4999 + b"\n")
        assert tail.look() == ["z" * 4999]
        log.copy_and_truncate()
        writer.write(b"after\n")  # leaves a hole of 5,000 zero bytes
        assert tail.look() == ["after"]
        assert [notice.count for notice in tail.told("nuls")] == [5000]


@pytest.mark.parametrize("max_bytes", [1, 2, 7, 100_000])
def test_line_ends_and_marks(tmp_path: Path, max_bytes: int) -> None:
    log = Log(tmp_path)
    log.append(b"\xef\xbb\xbflevel=info msg=first\r\nlevel=error msg=second\r\na\rb\n\r\n")
    with Following(tmp_path, "/logs/app.log", follow=False) as tail:
        lines = tail.read(max_bytes=max_bytes)
    assert lines == ["level=info msg=first", "level=error msg=second", "a\rb", ""]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_refused_with_one_sentence(tmp_path: Path, encoding: str) -> None:
    log = Log(tmp_path)
    log.append("\ufefflevel=info\r\n".encode(encoding))
    with Following(tmp_path, "/logs/app.log") as tail:
        assert tail.read() == []
        log.append("level=error\r\n".encode(encoding))
        assert tail.wait(3) == []
        assert [notice.text for notice in tail.notices] == [
            "/logs/app.log is UTF-16, which is not read: only UTF-8 is"
        ]


PIECES = st.lists(
    st.sampled_from([b"a", b"\r", b"\n", b"\0", b"bcdef", b"\0\0\0", "é".encode()]), max_size=40
)


@given(
    pieces=PIECES, cuts=st.lists(st.integers(1, 9), max_size=40), limit=st.integers(1, 8), keeps=st.booleans()
)
def test_lines_do_not_depend_on_how_the_bytes_were_cut(
    pieces: list[bytes], cuts: list[int], limit: int, keeps: bool
) -> None:
    data = b"".join(pieces)

    def split(parts: list[bytes]) -> tuple[list[tuple[bytes, int, int | None, int | None]], int]:
        splitter = LineSplitter(offset=0, max_line_bytes=limit, keeps_nuls=keeps)
        given: list[tuple[bytes, int, int | None, int | None]] = []
        for part in [*parts, None]:
            found = splitter.finish() if part is None else splitter.feed(part) if part else None
            if found is not None:
                for at, line in enumerate(found.lines):
                    given.append((line, found.ends[at], found.flags.get(at), found.lengths.get(at)))
        return given, splitter.line_start

    parts, at = [], 0
    for cut in cuts:
        parts.append(data[at : at + cut])
        at += cut
    whole, cut_up = split([data]), split([*parts, data[at:]])
    assert whole == cut_up
    assert whole[1] == len(data)
    assert all(len(line) <= limit for line, *_ in whole[0])


@given(lines=st.lists(st.binary(max_size=5).filter(lambda line: not set(line) & set(b"\n\r\0"))))
def test_every_line_is_given_with_its_end(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    found = LineSplitter(offset=1000, max_line_bytes=100, keeps_nuls=False).feed(data)
    assert (found.lines if found else []) == lines
    assert [data[: end - 1000].count(b"\n") for end in (found.ends if found else [])] == list(
        range(1, len(lines) + 1)
    )
