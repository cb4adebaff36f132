"""A long output is cut to what fits, never in the middle of anything, and the end of it is always there."""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import ModelUnavailable
from aeolus_sandbox.exit_status import ExitStatus, Stop
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.pieces import Piece
from aeolus_sandbox.streaming.chunks import OutputChunk, SummaryChunk
from aeolus_sandbox.streaming.clipping import ClippedText, clip_text
from aeolus_sandbox.streaming.policies import Buffer, Policy, Summarise, Window
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.stdin import UnixSignal
from aeolus_sandbox.streaming.tool import StreamingToolHandle
from aeolus_sandbox.tools.terminal.models import TerminalCodec, TerminalResult
from aeolus_sandbox.tools.terminal.tool import _Run
from tests.unit.policy_contexts import session_services

LIMIT = 4000
ASSERTION = "E   AssertionError: 2 != 3\n"
REPORT = "".join(f"collect {number}\n" for number in range(5000)) + ASSERTION
MARKER = re.compile(r"\n\[\.\.\. (\d+) of (\d+) characters left out \.\.\.\]\n")
SCIENTIST = "👩\u200d🔬"
POLICIES = [Buffer(), Window(max_chunks=3), Summarise(max_summary_length=LIMIT)]


class _Program:
    """A process that has written a text, and failed."""

    tty = False

    def __init__(self, text: str, *, piece_bytes: int = 1000) -> None:
        data = text.encode()
        starts = range(0, len(data), piece_bytes)
        self._batches = [[Piece("stdout", data[start : start + piece_bytes])] for start in starts]

    async def read(self) -> Sequence[Piece]:
        return self._batches.pop(0) if self._batches else ()

    async def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    async def signal(self, signal: UnixSignal) -> None: ...

    async def resize(self, *, cols: int, rows: int) -> None: ...

    async def stop(self, stop: Stop) -> None: ...

    async def wait(self) -> ExitStatus:
        return ExitStatus(reason="exited", code=1)


class _Model:
    """A model that answers, or fails, always in the same way."""

    def __init__(self, answer: str | Exception) -> None:
        self._answer = answer

    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


FAILURES: dict[str, str | Exception] = {
    "it fails": ModelUnavailable("no"),
    "it answers nothing": "",
    "it answers more than it got": "all is well, exit code 0 " * 10_000,
}


async def _read(
    text: str, policy: Policy, *, limit: int = LIMIT, answer: str | Exception = FAILURES["it fails"]
) -> tuple[list[OutputChunk], TerminalResult]:
    """Run a program that prints a text; return what its reader gets, and its result."""
    run = _Run(_Program(text), [], output=ClippedText(limit), max_chunk_bytes=32 * 1024)
    tasks, model = BackgroundTasks(), _Model(answer)

    async def release() -> None:
        return None

    session: StreamingToolSession[Any, TerminalResult] = StreamingToolSession(
        StreamingToolHandle(chunks=run.chunks(), finalize=run.result()),
        session_id="s",
        tool_name="terminal",
        policy=policy,
        codec=TerminalCodec(),
        limits=Limits(),
        services=session_services(tasks, text_model=lambda name: model),
        release=release,
    )
    async with asyncio.timeout(60), session:
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
    await tasks.aclose(timeout_s=5)
    return chunks, result


def _check_clipped(text: str, original: str, limit: int) -> None:
    assert len(text) <= limit
    marker = list(MARKER.finditer(text))[-1]
    assert int(marker[2]) == len(original)
    assert int(marker[1]) == len(original) - (len(text) - len(marker[0]))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
async def test_the_error_at_the_end_and_what_is_missing_are_there_under_every_policy(policy: Policy) -> None:
    chunks, result = await _read(REPORT, policy)
    assert result.exit_code == 1
    assert result.output.endswith(ASSERTION)
    _check_clipped(result.output, REPORT, LIMIT)
    assert chunks[-1].as_text().endswith(ASSERTION)
    for_a_model = clip_text(render_text("".join(chunk.as_text() for chunk in chunks)), LIMIT)
    assert for_a_model.endswith(ASSERTION)
    assert len(for_a_model) <= LIMIT


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
async def test_a_summary_that_no_model_made_is_the_head_and_tail_and_says_so(answer: str | Exception) -> None:
    chunks, result = await _read(REPORT, Summarise(max_summary_length=LIMIT), answer=answer)
    (chunk,) = chunks
    assert isinstance(chunk, SummaryChunk)
    assert chunk.text.startswith("collect 0\n")
    assert chunk.text.endswith(ASSERTION)
    _check_clipped(chunk.text, REPORT, LIMIT)
    assert chunk.made_by == "truncation"
    assert chunk.note
    assert (result.exit_code, str(result.status)) == (1, "exited with code 1")


async def test_what_a_summary_claims_does_not_change_how_the_run_ended() -> None:
    chunks, result = await _read(REPORT, Summarise(), answer="All tests passed, exit code 0.")
    assert [chunk.as_text() for chunk in chunks] == ["All tests passed, exit code 0."]
    assert (result.exit_code, result.status.code) == (1, 1)
    assert ASSERTION in result.output


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("text", [REPORT, "é" * 100_000, f"\x1b[31m{SCIENTIST}" * 5000])
async def test_the_smallest_limits_are_kept(text: str, limit: int) -> None:
    chunks, result = await _read(text, Summarise(max_summary_length=limit), limit=limit)
    assert isinstance(chunks[-1], SummaryChunk)
    assert len(chunks[-1].text) <= limit
    assert len(result.output) <= limit


@pytest.mark.parametrize("answer", FAILURES.values(), ids=FAILURES)
async def test_one_line_without_an_end_loses_neither_its_end_nor_count(answer: str | Exception) -> None:
    line = "é" * 100_000 + "!"
    chunks, result = await _read(line, Summarise(max_summary_length=LIMIT), answer=answer)
    for text in (chunks[-1].as_text(), result.output):
        _check_clipped(text, line, LIMIT)
        assert set(MARKER.sub("", text)) == {"é", "!"}
        assert text.endswith("!")


@pytest.mark.parametrize("shift", range(12))
async def test_no_character_and_no_colour_is_cut_in_two(shift: int) -> None:
    output = "x" * shift + f"\x1b[38;5;196m{SCIENTIST}" * 3000 + "\n"
    chunks, result = await _read(output, Summarise(max_summary_length=100), limit=100)
    for text in (chunks[-1].as_text(), result.output):
        assert len(text) <= 100
        assert "\x1b" not in text
        assert "38;5" not in text
        head, _, _, tail = MARKER.split(text)
        assert head.lstrip("x").replace(SCIENTIST, "") == ""
        assert tail.replace(SCIENTIST, "") == "\n"


@pytest.mark.parametrize("shift", range(6))
async def test_a_model_s_answer_is_not_cut_in_the_middle_of_a_character_either(shift: int) -> None:
    answer = "x" * shift + SCIENTIST * 200
    chunks, _ = await _read(REPORT, Summarise(max_summary_length=100), answer=answer)
    assert isinstance(chunks[-1], SummaryChunk)
    assert chunks[-1].made_by == "model"
    head, _, _, tail = MARKER.split(chunks[-1].text)
    assert head.lstrip("x").replace(SCIENTIST, "") == tail.replace(SCIENTIST, "") == ""


async def test_a_redrawn_progress_bar_is_short_and_leaves_the_error() -> None:
    bar = "".join(f"\r{number / 1000:.3f}%" for number in range(100_000)) + "\n" + ASSERTION
    chunks, result = await _read(bar, Summarise(max_summary_length=LIMIT))
    for text in (chunks[-1].as_text(), result.output):
        assert text.endswith(ASSERTION)
        assert len(text) < 200


def test_a_tail_that_rendering_made_short_is_kept_whole() -> None:
    gist = ClippedText(8000)
    gist.feed("x" * 100_000)
    colours = "\x1b[31m\x1b[0m" * 7
    gist.feed("".join(f"line {number}{colours}\n" for number in range(1000)))
    assert gist.rendered(render_text).endswith("".join(f"line {number}\n" for number in range(600, 1000)))
