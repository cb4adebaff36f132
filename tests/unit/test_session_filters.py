"""What a filter takes out of a tool's text is nowhere: not with the reader, not in the spool, not in the result."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from aeolus_sandbox import (
    Buffer,
    CleanControls,
    ExitStatus,
    Filter,
    Limits,
    OutputChunk,
    Policy,
    Redact,
    SessionManager,
    Stop,
    StreamingTool,
    StreamingToolHandle,
    TerminalChunk,
    ToolContext,
    Window,
)
from aeolus_sandbox.streaming.clipping import ClippedText
from aeolus_sandbox.tools.terminal.models import TerminalCodec

SECRET = "hunter2-hunter2-hunter2"
FILTERS: tuple[Filter, ...] = (CleanControls(), Redact(values=(SecretStr(SECRET),)))
POLICIES: list[Policy] = [Buffer(filters=FILTERS), Window(filters=FILTERS)]


class _Output(BaseModel):
    pieces: tuple[bytes, ...]


class _End(BaseModel):
    output: str
    details: dict[str, list[str]]
    status: ExitStatus = ExitStatus(reason="exited", code=0)


class _Printer(StreamingTool[_Output, TerminalChunk, _End]):
    """Streams the given pieces, and keeps their gist for its result."""

    name: ClassVar[str] = "printer"
    description: ClassVar[str] = "Print."
    Input = _Output
    OutputChunk = TerminalChunk
    Final = _End

    async def start(
        self, tool_input: _Output, context: ToolContext
    ) -> StreamingToolHandle[TerminalChunk, _End]:
        gist = ClippedText(200, new_filter=context.text_filter)

        async def chunks() -> AsyncIterator[TerminalChunk]:
            for piece in tool_input.pieces:
                chunk = TerminalChunk(stream="stdout", data=piece)
                gist.feed(chunk.text, flow=chunk.stream)
                yield chunk

        async def result() -> _End:
            whole = b"".join(tool_input.pieces).decode("utf-8", "replace")
            return _End(output=gist.rendered(str), details={"all": [whole]})

        return StreamingToolHandle(chunks=chunks(), finalize=result())

    def codec(self) -> TerminalCodec:
        return TerminalCodec()


async def _run(
    policy: Policy, pieces: Sequence[bytes], *, filters: Sequence[Filter] = ()
) -> tuple[str, bytes, _End]:
    """Return what the reader got, what the spool holds, and the result."""
    output = _Output(pieces=tuple(pieces))
    async with (
        asyncio.timeout(20),
        SessionManager(filters=filters) as manager,
        await manager.open(_Printer(), output, policy=policy) as session,
    ):
        text = "".join([chunk.text async for chunk in session])
        return text, await session.read_range(0, 2**31), await session.finalize()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
async def test_a_secret_split_over_chunks_is_neither_read_nor_held_nor_in_the_result(policy: Policy) -> None:
    pieces = [b"before ", b"\x1b]0;title\x07hunter2", b"-hunter2-h", b"\x1b[31munter2 after"]
    text, held, end = await _run(policy, pieces)
    assert text == "before [redacted] after"
    assert held == text.encode()
    assert end.output == text
    assert end.details == {"all": [text]}
    assert end.status.ok


async def test_half_a_secret_at_a_cut_is_not_in_the_result() -> None:
    """The gist of a long output is cut: what is cut off half cannot be found afterwards."""
    for before in range(40, 110):
        pieces = [b"x" * before + SECRET.encode() + b"y" * 5000]
        _, _, end = await _run(Window(filters=FILTERS), pieces)
        assert "left out" in end.output
        assert "hunter" not in end.output


async def test_filters_of_the_manager_cannot_be_left_out_by_a_call() -> None:
    text, held, end = await _run(Window(), [SECRET.encode()], filters=FILTERS)
    assert text == "[redacted]"
    assert SECRET not in f"{held!r} {end}"


async def test_what_is_held_back_for_a_filter_comes_at_the_end() -> None:
    text, _, end = await _run(Window(filters=FILTERS), [b"ask hunt"])
    assert text == end.output == "ask hunt"


async def test_a_prompt_is_not_held_back() -> None:
    asked = asyncio.Event()

    class Prompter(_Printer):
        async def start(
            self, tool_input: _Output, context: ToolContext
        ) -> StreamingToolHandle[TerminalChunk, _End]:
            handle = await super().start(tool_input, context)

            async def chunks() -> AsyncIterator[TerminalChunk]:
                async for chunk in handle.chunks:
                    assert isinstance(chunk, TerminalChunk)
                    yield chunk
                await asked.wait()

            return StreamingToolHandle(chunks=chunks(), finalize=handle.finalize)

    async with (
        asyncio.timeout(20),
        SessionManager(filters=FILTERS) as manager,
        await manager.open(Prompter(), _Output(pieces=(b"Password: ",)), policy=Window()) as session,
    ):
        chunk = await session.next_chunk()
        assert chunk is not None
        assert chunk.text == "Password: "
        asked.set()


async def test_output_that_was_cut_by_its_limit_does_not_end_in_what_was_held_back() -> None:
    pieces = [b"x" * 2000, SECRET.encode()[:-1]]
    output = _Output(pieces=tuple(pieces))
    async with (
        asyncio.timeout(20),
        SessionManager(limits=Limits(output_bytes=1024)) as manager,
        await manager.open(_Printer(), output, policy=POLICIES[0]) as session,
    ):
        text = "".join([chunk.text async for chunk in session])
        await session.finalize()
    assert "hunter" not in text


_hostile = st.lists(
    st.one_of(
        st.sampled_from(
            [
                SECRET,
                SECRET[:9],
                "\x1b]52;c;aGk=\x07",
                "\x1b[31m",
                "\x1b",
                "\u202e",
                "\x9b",
                "é",
                "👩‍🔬",
                "\n",
                "\r",
            ]
        ),
        st.text(max_size=5),
    ),
    max_size=12,
).map(lambda parts: "".join(parts).encode("utf-8", "replace"))


@given(data=_hostile, cuts=st.lists(st.integers(0, 300), max_size=10))
async def test_any_split_of_the_same_bytes_gives_the_same_text(data: bytes, cuts: list[int]) -> None:
    text = data.decode()
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[start:end].encode() for start, end in itertools.pairwise(places)]
    whole = await _run(Window(filters=FILTERS), [data])
    split = await _run(Window(filters=FILTERS), pieces)
    assert split == whole


class _Row(OutputChunk):
    name: str
    values: list[str]


class _Rows(StreamingTool[_Output, _Row, _End]):
    name: ClassVar[str] = "rows"
    description: ClassVar[str] = "Rows."
    Input = _Output
    OutputChunk = _Row
    Final = _End

    async def start(self, tool_input: _Output, context: ToolContext) -> StreamingToolHandle[_Row, _End]:
        async def chunks() -> AsyncIterator[_Row]:
            yield _Row(name="row", values=[f"key {SECRET}", "plain"])

        async def result() -> _End:
            return _End(output="", details={})

        return StreamingToolHandle(chunks=chunks(), finalize=result())


async def test_chunks_of_any_kind_are_filtered_in_all_their_texts() -> None:
    async with (
        asyncio.timeout(20),
        SessionManager(filters=FILTERS) as manager,
        await manager.open(_Rows(), _Output(pieces=()), policy=Window()) as session,
    ):
        rows = [row async for row in session]
        assert rows[0].values == ["key [redacted]", "plain"]
        assert await session.read_range(*rows[0].span) == rows[0].model_dump_json().encode() + b"\n"


def test_a_stop_is_not_confused_with_a_secret() -> None:
    """The words of a status are ours, and stay."""
    from aeolus_sandbox.streaming.filters.chunk_filter import filtered_model

    end = _End(output="exited", details={}, status=ExitStatus(reason="exited"))
    filtered = filtered_model(end, (Redact(values=(SecretStr("exited"),)),))
    assert filtered.output == "[redacted]"
    assert filtered.status == ExitStatus(reason="exited")
    assert filtered_model(Stop(reason="exited"), FILTERS) == Stop(reason="exited")
