"""An answer is the same in whatever pieces it comes, and it is broken off wherever it ends too soon."""

import asyncio
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.errors import ModelUnavailable
from aeolus_sandbox.model.anthropic_answer import parse_input
from aeolus_sandbox.model.chat import (
    Answer,
)
from aeolus_sandbox.testing.messages_server import (
    PING,
    Item,
    Reply,
    streams,
    text_block,
    thinking_block,
    tool_block,
)
from tests.unit.chat_service import ASKED, NAME, Pieces, Service, read, serving

ITEMS: list[Item] = [
    thinking_block("Größe", " ↯ ", signature="c2ln"),
    PING,
    text_block("naïve ", "", "👩‍🔬\n\ndata: x"),
    tool_block("terminal", fragments=['{"comm', 'and":"printf caf', "\\u00", 'e9 \\"ü\\""}'], id="toolu_x"),
]
WHOLE = b"".join(piece for piece in streams(*ITEMS).pieces or () if isinstance(piece, bytes))
HEADERS = streams().headers


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", name="service")
def _service(loop: asyncio.Runner) -> Iterator[Service]:
    with serving(loop) as opened:
        yield opened


@pytest.fixture(scope="module")
def undivided(loop: asyncio.Runner, service: Service) -> Pieces:
    service[0].replies = [streams(*ITEMS)]
    return loop.run(read(service[1].chat_model(NAME)))


@given(st.lists(st.integers(0, len(WHOLE)), max_size=40), st.sampled_from([b"\n", b"\r\n"]))
@settings(max_examples=60, deadline=None)
def test_an_answer_is_the_same_however_the_stream_is_cut_into_pieces(
    loop: asyncio.Runner, service: Service, undivided: Pieces, cuts: list[int], newline: bytes
) -> None:
    server, models = service
    body = WHOLE.replace(b"\n", newline)
    places = [0, *sorted(cuts), len(body)]
    pieces = [body[begin:end] for begin, end in pairwise(places)]
    server.replies = [Reply(headers=HEADERS, pieces=pieces)]
    assert loop.run(read(models.chat_model(NAME))) == undivided


@given(st.integers(0, len(WHOLE) - 1), st.sampled_from(["whole", "inside"]))
@settings(max_examples=60, deadline=None)
def test_a_stream_is_broken_off_wherever_it_ends_too_soon(
    loop: asyncio.Runner, service: Service, undivided: Pieces, end: int, ends: Any
) -> None:
    server, models = service
    server.replies = [Reply(headers=HEADERS, pieces=[WHOLE[:end]], ends=ends)]
    shown: Pieces = []

    async def read() -> None:
        async for piece in models.chat_model(NAME).stream(ASKED):
            shown.append(piece)

    with pytest.raises(ModelUnavailable):
        loop.run(read())
    assert shown == undivided[: len(shown)]
    assert len(shown) < len(undivided)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _json, max_size=4), st.booleans(), st.data())
@settings(max_examples=60, deadline=None)
def test_the_input_of_a_call_is_the_same_in_whatever_fragments_it_comes(
    loop: asyncio.Runner, service: Service, value: dict[str, Any], ascii_only: bool, data: st.DataObject
) -> None:
    server, models = service
    text = json.dumps(value, ensure_ascii=ascii_only)
    places = [0, *sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=9))), len(text)]
    fragments = [text[begin:end] for begin, end in pairwise(places)]
    server.replies = [streams(tool_block("terminal", fragments=fragments))]
    answer = loop.run(read(models.chat_model(NAME)))[-1]
    assert isinstance(answer, Answer)
    (call,) = answer.message.tool_uses
    assert (call.input, call.malformed) == (value, None)


@given(st.text(alphabet='{}[]":,\\ue019anlf \n\0', max_size=30))
def test_an_input_that_is_taken_can_be_sent_back(text: str) -> None:
    value = parse_input(text)
    if value is not None:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
