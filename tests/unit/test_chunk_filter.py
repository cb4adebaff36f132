"""Chunks pass the filters of their session: texts that run on as one, everything else by itself."""

import base64
import dataclasses
import itertools
from enum import StrEnum
from functools import cached_property
from typing import Literal, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from aeolus_sandbox.streaming.chunks import C, OutputChunk
from aeolus_sandbox.streaming.filters import CleanControls, Filter, Redact
from aeolus_sandbox.streaming.filters.base import filtered
from aeolus_sandbox.streaming.filters.chunk_filter import ChunkFilter, filtered_model
from aeolus_sandbox.streaming.text import Utf8Boundary
from aeolus_sandbox.tools.code_interpreter import CodeChunk
from aeolus_sandbox.tools.code_interpreter.models import CodeStream
from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalStream

REDACT = Redact(values=(SecretStr("swordfish"), SecretStr("pässwörd")))
FILTERS: list[Filter] = [CleanControls(), REDACT]
PNG = base64.b64encode(b"\x89PNG swordfish swordfish").decode()


def out(chunk: str | bytes, stream: TerminalStream = "stdout") -> TerminalChunk:
    return TerminalChunk(stream=stream, data=chunk.encode() if isinstance(chunk, str) else chunk)


def code(content: str, stream: CodeStream = "stdout", **fields: object) -> CodeChunk:
    return CodeChunk.model_validate({"stream": stream, "content": content, **fields})


def run(chunks: list[C], filters: list[Filter] = FILTERS) -> list[C]:
    chunk_filter = ChunkFilter[C](filters)
    passed = [chunk_filter.feed(chunk) for chunk in chunks]
    return [chunk for chunk in passed if chunk is not None] + chunk_filter.flush()


def text_of(chunks: list[C], flow: str = "stdout") -> str:
    return "".join(chunk.as_text() for chunk in chunks if chunk.flow() == flow)


stream_bytes = st.lists(
    st.sampled_from(
        [b"sword", b"fish", "pässwörd".encode(), "pä".encode(), b"\xc3", b"\xa4", b"\xff", b"\x9b", b"\x1b]0;t", b"\x07",
         b"\x1b[3", b"1m", b"\n", b" ", "\x9b".encode(), "😀".encode()]
    ),
    max_size=14,
).map(b"".join)  # fmt: skip


def terminal_chunks(data: bytes, cuts: list[int]) -> list[TerminalChunk]:
    boundary = Utf8Boundary()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [boundary.feed(data[a:b]) for a, b in itertools.pairwise(places)] + [boundary.flush()]
    return [out(piece) for piece in pieces if piece]


@settings(deadline=None)
@given(stream_bytes, st.lists(st.integers(0, 80), max_size=12))
def test_bytes_cut_anywhere_give_the_same(data: bytes, cuts: list[int]) -> None:
    chunks = run(terminal_chunks(data, cuts))
    expected = filtered(data.decode("utf-8", "replace"), FILTERS)
    assert text_of(chunks) == expected
    assert b"".join(chunk.data for chunk in chunks) == expected.encode()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["sword", "fish", "\x1b[", "31m", " ", "pass"]),
            st.sampled_from(["stdout", "stderr"]),
        )
    )
)
def test_each_stream_of_code_is_one_text(pieces: list[tuple[str, CodeStream]]) -> None:
    chunks = run([code(content, stream) for content, stream in pieces])
    for stream in ("stdout", "stderr"):
        whole = "".join(content for content, each in pieces if each == stream)
        assert text_of(chunks, stream) == filtered(whole, FILTERS)


def test_secret_split_over_chunks_is_found_and_streams_do_not_mix() -> None:
    chunks = run([out("a sword"), out("sword", "stderr"), out("fish b"), out("-fight", "stderr")])
    assert [(chunk.stream, chunk.text) for chunk in chunks] == [
        ("stdout", "a "), ("stdout", "[redacted] b"), ("stderr", "sword-fight"),
    ]  # fmt: skip


def test_what_is_held_at_the_end_passes() -> None:
    assert text_of(run([out("a sword")])) == "a sword"


def test_what_has_nothing_to_take_out_is_passed_on_as_it_is() -> None:
    chunk = out("plain text\n")
    assert run([chunk])[0] is chunk


def test_bytes_that_are_not_text_do_not_slip_past_the_filters() -> None:
    assert run([out(b"a\x9b2Jb")])[0].data == "a\ufffd2Jb".encode()


def test_picture_stays_and_its_description_is_filtered() -> None:
    (chunk,) = run([code(PNG, "image", mime_type="image/png", alternatives={"text/plain": "a swordfish"})])
    assert (chunk.content, chunk.alternatives) == (PNG, {"text/plain": "a [redacted]"})


def test_display_between_two_pieces_of_printed_text_does_not_part_them() -> None:
    chunks = run([code("sword"), code("<b>swordfish</b>", "display", mime_type="text/html"), code("fish\n")])
    assert [(chunk.stream, chunk.content) for chunk in chunks] == [
        ("display", "<b>[redacted]</b>"), ("stdout", "[redacted]\n"),
    ]  # fmt: skip


class Line(NamedTuple):
    number: int
    text: str


@dataclasses.dataclass(frozen=True)
class Note:
    text: str


class Level(StrEnum):
    HIGH = "swordfish"


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True)

    text: str
    kind: Literal["swordfish", "other"] = "swordfish"
    maybe: Literal["swordfish"] | None = "swordfish"


class Everything(OutputChunk):
    model_config = ConfigDict(extra="allow")

    level: Level = Level.HIGH
    inner: Inner = Inner(text="a swordfish")
    several: tuple[Inner, ...] = (Inner(text="b swordfish"),)
    named: dict[str, list[str | int | None]] = Field(default={"swordfish": ["swordfish", 1, None]})
    unique: frozenset[str] = frozenset({"swordfish"})
    line: Line = Line(3, "swordfish")
    note: Note = Note("swordfish")
    raw: bytes = b"swordfish"
    nothing: str | None = None

    @cached_property
    def loud(self) -> str:
        return self.inner.text.upper()


@pytest.mark.parametrize("through_chunk", [True, False])
def test_every_text_of_a_model_is_filtered_and_all_else_stays(through_chunk: bool) -> None:
    model = Everything.model_validate({"span": (3, 9), "more": ["swordfish"]})
    assert model.loud == "A SWORDFISH"
    changed = run([model])[0] if through_chunk else filtered_model(model, FILTERS)
    assert changed.model_dump() == model.model_dump() | {
        "inner": {"text": "a [redacted]", "kind": "swordfish", "maybe": "swordfish"},
        "several": ({"text": "b [redacted]", "kind": "swordfish", "maybe": "swordfish"},),
        "named": {"[redacted]": ["[redacted]", 1, None]},
        "unique": frozenset({"[redacted]"}),
        "line": Line(3, "[redacted]"),
        "note": {"text": "[redacted]"},
        "more": ["[redacted]"],
    }
    assert changed.level is Level.HIGH
    assert changed.loud == "A [REDACTED]"
    assert changed.span == (3, 9)
    assert model.inner.text == "a swordfish"


def test_model_without_anything_to_take_out_is_not_copied() -> None:
    inner = Inner(text="plain")
    assert filtered_model(inner, []) is inner
    assert filtered_model(inner, FILTERS) == inner
