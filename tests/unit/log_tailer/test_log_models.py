"""What the log tailer takes is checked before anything starts; what it gives can be written down and read again."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.guest.logs.frames import NOTICES
from aeolus_sandbox.guest.logs.lines import LEVELS, LineFlag
from aeolus_sandbox.streaming.filters import Redact
from aeolus_sandbox.streaming.filters.base import filtered
from aeolus_sandbox.streaming.filters.model_texts import map_texts
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogFields,
    LogFilter,
    LogFlag,
    LogLevel,
    LogNotice,
    LogNoticeKind,
    LogPosition,
    LogResult,
    LogTailerInput,
    Multiline,
)

POSITION = LogPosition(path="/srv/a.log", device=2**63, inode=7, offset=12, head_bytes=3, head_hash="ab" * 32)


def test_the_host_and_the_guest_know_the_same_names() -> None:
    assert tuple(LogLevel) == LEVELS
    assert {flag.name for flag in LineFlag} == {flag.name for flag in LogFlag}
    assert {kind.value for kind in LogNoticeKind} == set(NOTICES)


def test_levels_are_ordered_by_severity_and_not_by_name() -> None:
    assert max(LogLevel) is LogLevel.EMERGENCY
    assert LogLevel.ERROR >= LogLevel.WARNING > LogLevel.NOTICE
    assert LogLevel.CRITICAL > "error"
    assert LogLevel.DEBUG <= LogLevel.DEBUG
    assert not LogLevel.ALERT < LogLevel.CRITICAL


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("(", 1),
        ("(?P<x>", 6),
        ("ok|[a-", 3),
        ("a*b|*c", 4),
        ("x)", 1),
        ("a(?=b)", 1),
        ("a**", 1),
        ("tail\\", 5),
    ],
)
@pytest.mark.parametrize("make", ["pattern", "exclude", "start"])
def test_a_pattern_that_is_none_is_refused_with_the_place_of_its_fault(
    make: str, pattern: str, position: int
) -> None:
    with pytest.raises(ValidationError, match=f"at position {position}"):
        Multiline(start=pattern) if make == "start" else LogFilter.model_validate({make: pattern})


@pytest.mark.parametrize(
    "pattern", ["", "a" * 10_000, "a.{900}b.{900}c", "(?i)(\\pL{1,30}\\s?){1,30}!$", "\ud800"]
)
def test_a_pattern_that_is_empty_or_costs_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ValidationError, match="pattern"):
        LogFilter(pattern=pattern)


@pytest.mark.parametrize(
    "since", [datetime(2024, 3, 10, tzinfo=UTC), timedelta(hours=1), "PT1H", "2024-03-10T09:15:02+05:30"]
)
def test_a_time_is_a_moment_with_a_zone_or_how_long_ago(since: Any) -> None:
    assert LogFilter(since=since).since is not None


@pytest.mark.parametrize("since", [datetime(2024, 3, 10), timedelta(seconds=-1), "yesterday", "-PT1H"])  # noqa: DTZ001
def test_a_time_without_a_zone_or_in_the_future_is_refused(since: Any) -> None:
    with pytest.raises(ValidationError):
        LogFilter(since=since)


def test_fields_are_compared_as_texts() -> None:
    found = LogFilter.model_validate({"equals": {"status": 404, "ok": True, "user.id": "7", "ratio": 0.5}})
    assert found.equals == {"status": "404", "ok": "true", "user.id": "7", "ratio": "0.5"}


@pytest.mark.parametrize("path", ["", (), ("/a", ""), "/a\0b", ("/x",) * 1001])
def test_a_path_that_is_none_is_refused(path: Any) -> None:
    with pytest.raises(ValidationError):
        LogTailerInput(path=path)


def test_a_cursor_is_written_as_json_and_read_again() -> None:
    cursor = LogCursor(positions=(POSITION, POSITION.model_copy(update={"done": True})))
    assert LogCursor.model_validate_json(cursor.model_dump_json()) == cursor
    again = LogTailerInput(path="/srv/a.log", from_cursor=cursor)
    assert LogTailerInput.model_validate_json(again.model_dump_json()) == again


def test_a_result_is_never_empty_in_words() -> None:
    nothing = LogResult(
        status=ExitStatus(reason="cancelled"),
        lines_read=0,
        lines_matched=0,
        lines_dropped=0,
        lines_unparsed=0,
        bytes_read=0,
    )
    assert nothing.as_text() == "[0 of 0 lines]\n[cancelled]"
    many = nothing.model_copy(update={"files": tuple(f"/srv/{n}.log" for n in range(25)), "rotations": 2})
    assert "and 5 more files" in many.as_text()
    assert "2 rotations" in many.as_text()
    assert LogResult.model_validate_json(many.model_dump_json(round_trip=True)) == many


# Chunks and their fields.


def _chunk(**values: Any) -> LogChunk:
    return LogChunk(**{"raw": "r", "message": "m", "file": "/f", "sequence": 1} | values)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(fields=st.dictionaries(st.text(), json_values, max_size=4))
def test_fields_are_what_their_json_says(fields: dict[str, Any]) -> None:
    read = LogFields(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
    assert dict(read) == json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))


@given(data=st.binary(max_size=60))
def test_fields_never_raise(data: bytes) -> None:
    for hostile in (data, b'{"a":' + data + b"}", b'{"a":1e999}', b'{"a":' * 50_000):
        assert isinstance(len(LogFields(hostile)), int)


def test_fields_keep_big_numbers_and_the_last_of_a_name() -> None:
    assert dict(LogFields(b'{"n":12345678901234567890123,"l":"info","l":"error","f":1e400}')) == {
        "n": 12345678901234567890123,
        "l": "error",
        "f": float("inf"),
    }


def test_a_chunk_is_written_as_json_and_read_again() -> None:
    chunk = _chunk(
        level="error",
        timestamp=datetime(2024, 3, 10, 9, 15, 2, 120000, UTC),
        zone="+05:30",
        fields={"a": {"b": [1, None]}},
        flags=("truncated", "zone_assumed"),
        length=99,
    )
    again = LogChunk.model_validate_json(chunk.model_dump_json())
    assert again == chunk
    assert again.flags == (LogFlag.TRUNCATED, LogFlag.ZONE_ASSUMED)
    assert json.loads(chunk.model_dump_json())["fields"] == {"a": {"b": [1, None]}}


def test_a_notice_is_text_too_and_can_be_changed() -> None:
    notice = _chunk(
        raw="", message="x", notice=LogNotice(kind=LogNoticeKind.ROTATED, text="a.log was replaced")
    )
    assert notice.as_text() == "[/f: a.log was replaced]"
    assert notice.with_text("other").as_text() == "[/f: other]"


def test_a_secret_is_taken_out_of_every_part_of_a_chunk() -> None:
    fields = {"password": "hunter2", "deep": [{"hunter2": "x hunter2 y"}], "n": 1}
    chunk = _chunk(raw="password=hunter2", message="hunter2", fields=fields)
    masked = chunk.mapped(lambda text: text.replace("hunter2", "[x]"))
    assert "hunter2" not in masked.model_dump_json()
    assert masked.fields["n"] == 1


def test_a_filter_that_knows_a_secret_by_its_name_sees_the_name() -> None:
    chunk = _chunk(fields={"token": "abc", "ok": "abc"})
    masked = chunk.mapped(lambda text: text.replace('"token": "abc"', '"token": "[x]"'))
    assert dict(masked.fields) == {"token": "[x]", "ok": "abc"}
    broken = chunk.mapped(lambda text: text.replace('"token": "abc"', "[x]"))
    assert dict(broken.fields) == {}


def test_another_text_leaves_nothing_of_the_line() -> None:
    changed = _chunk(raw="secret", message="secret", fields={"a": "secret"}).with_text("[withheld]")
    assert "secret" not in changed.model_dump_json()
    assert changed.as_text() == "[withheld]"


def test_a_cursor_is_left_alone_by_the_filter_of_secrets() -> None:
    cursor = LogCursor(positions=(POSITION,))
    assert map_texts(cursor, lambda text: filtered(text, (Redact(),))) == cursor
