"""What the console shows, and that nothing of a tool or the model controls the terminal."""

import asyncio
import base64
import io
import os
import re
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.consumers import ConsoleConsumer, deliver
from aeolus_sandbox.events import (
    AggregatedUsage,
    Content,
    Error,
    ModelRetried,
    Reasoning,
    StreamEvent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolOutput,
    TurnCompleted,
    UsageUpdate,
)
from aeolus_sandbox.streaming.screen import ORDERS
from tests.unit.consumers.runs_of_events import Run, any_run, deliver_all, texts

LIMIT_S = 30.0
HOSTILE = (
    "ok\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0=\x07\x1b]8;;http://x.example/\x1b\\link\x1b]8;;\x1b\\ "
    "\x9b31mred \u202egnp.exe"
)
ORDER = re.compile(ORDERS)
COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x02\x00\x00\x00"
PICTURE = {"stream": "image", "mime_type": "image/png", "content": base64.b64encode(PNG).decode()}


def call(call_id: str, name: str = "python") -> dict[str, Any]:
    return {"tool_call_id": call_id, "tool_name": name}


def output(call_id: str, text: str, chunk: Any = None) -> tuple[type[ToolOutput], dict[str, Any]]:
    return ToolOutput, call(call_id) | {"stream": "stdout", "text": text, "chunk": chunk}


def started(call_id: str) -> tuple[type[ToolCallStarted], dict[str, Any]]:
    return ToolCallStarted, call(call_id) | {"arguments": '{"code": "1"}'}


async def shown(*middle: Any, **options: Any) -> str:
    return await shown_run(Run().whole(*middle), **options)


async def shown_run(events: list[StreamEvent], **options: Any) -> str:
    stream = io.StringIO()
    async with asyncio.timeout(LIMIT_S):
        await deliver_all(ConsoleConsumer(stream=stream, **options), events)
    return stream.getvalue()


async def test_a_run_is_shown_as_it_goes() -> None:
    text = await shown(
        (Reasoning, {"content": "let me "}),
        (Reasoning, {"content": "see"}),
        (Content, {"content": "I lo"}),
        (Content, {"content": "ok."}),
        started("a"),
        output("a", "4"),
        output("a", "2\n"),
        (ToolCallCompleted, call("a") | {"result": {}, "success": True, "duration_ms": 1500.0}),
        started("b"),
        (ToolCallFailed, call("b") | {"error": "not\nallowed"}),
        (ModelRetried, {"attempt": 1, "error": "overloaded", "wait_s": 2}),
        (UsageUpdate, {"snapshot": AggregatedUsage(requests=2, input_tokens=1234, output_tokens=5)}),
        (TurnCompleted, {"turn": 1, "stop_reason": "end_turn"}),
        (Content, {"content": "42"}),
        (Error, {"message": "too bad"}),
    )
    assert text.splitlines() == [
        "thinking: let me see",
        "I look.",
        '  1 > python {"code": "1"}',
        "  1 \u2502 42",
        "  1 \u2713 python, 1.50 s",
        '  2 > python {"code": "1"}',
        "  2 \u2717 python failed: not\u240aallowed",
        "! attempt 1 failed: overloaded; next one in 2.0 s",
        "42",
        "error: too bad",
        "2 requests: 1,234 tokens sent, 5 received",
    ]


async def test_output_of_parallel_calls_is_told_apart() -> None:
    text = await shown(
        *(started("a"), started("b"), output("a", "one\ntw"), output("b", "other\n"), output("a", "o\n"))
    )
    assert text.splitlines()[2:] == [
        "  1 \u2502 one",
        "  1 \u2502 tw",
        "  2 \u2502 other",
        "  1 \u2502 o",
    ]


async def test_parts_can_be_left_out() -> None:
    events = Run().whole(
        (Reasoning, {"content": "secret plan"}),
        started("a"),
        output("a", "printed\n"),
        (ToolCallCompleted, call("a") | {"result": {"x": 1}, "success": False, "duration_ms": 0.0}),
    )
    stream = io.StringIO()
    quiet = ConsoleConsumer(stream=stream).with_colors(True).with_reasoning(False)
    await deliver_all(quiet.with_tool_details(False).with_tool_output(False), events)
    assert [COLOUR.sub("", line) for line in stream.getvalue().splitlines()] == [
        "  1 > python",
        "  1 \u2717 python, 0.00 s",
    ]
    assert COLOUR.search(stream.getvalue())


async def test_result_is_shown_in_short_where_no_output_was() -> None:
    text = await shown(
        started("a"),
        (ToolCallCompleted, call("a") | {"result": "x" * 300, "success": True, "duration_ms": 0.0}),
    )
    assert text.splitlines()[-1].endswith(f"{'x' * 200} ... (100 more characters)")


@pytest.mark.parametrize("colours", [True, False])
@pytest.mark.parametrize(
    "kind", ["content", "reasoning", "output", "failure", "arguments", "result", "error"]
)
@settings(max_examples=25)
@given(st.data())
async def test_no_order_reaches_the_terminal_however_it_is_cut(
    kind: str, colours: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(HOSTILE)), max_size=4)))
    pieces = [HOSTILE[start:end] for start, end in zip([0, *cuts], [*cuts, len(HOSTILE)], strict=True)]
    events: dict[str, list[Any]] = {
        "content": [(Content, {"content": piece}) for piece in pieces],
        "reasoning": [(Reasoning, {"content": piece}) for piece in pieces],
        "output": [output("a", piece) for piece in pieces],
        "failure": [(ToolCallFailed, call("a", HOSTILE) | {"error": HOSTILE})],
        "arguments": [(ToolCallStarted, call("a", HOSTILE) | {"arguments": HOSTILE})],
        "result": [(ToolCallCompleted, call("a") | {"result": HOSTILE, "success": True, "duration_ms": 1.0})],
        "error": [(Error, {"message": HOSTILE})],
    }
    text = await shown(*events[kind], colors=colours)
    assert ORDER.search(COLOUR.sub("", text) if colours else text) is None
    if kind in {"content", "output"}:
        visible = COLOUR.sub("", text).replace("\n", "")
        assert "\u241b]52;c;cm0=\u2407" in visible
        assert "<U+202E>gnp.exe" in visible


@given(any_run(), st.booleans())
async def test_any_run_is_shown_without_orders(events: list[StreamEvent], colours: bool) -> None:
    text = await shown_run(events, colors=colours)
    assert "\r" not in text
    assert ORDER.search(COLOUR.sub("", text)) is None


@given(st.lists(st.text("ab \n", max_size=9), max_size=9))
async def test_plain_text_is_shown_as_it_is(pieces: list[str]) -> None:
    events = Run().whole(*[(Content, {"content": piece}) for piece in pieces])
    text = await shown_run(events)
    whole = "".join(piece for _, piece in texts(events))
    assert text == (whole if whole.endswith("\n") or not whole else whole + "\n")


async def test_plots_are_saved_where_no_tool_can_say(tmp_path: Path) -> None:
    (tmp_path / "plot-001.png").write_bytes(b"mine")
    text = await shown(
        started("a"),
        output("a", "", PICTURE),
        (ToolCallCompleted, call("a") | {"result": {"plots": [PICTURE]}, "success": True, "duration_ms": 0}),
        plots_folder=tmp_path,
    )
    assert (tmp_path / "plot-001.png").read_bytes() == b"mine"
    assert (tmp_path / "plot-002.png").read_bytes() == PNG
    assert len(list(tmp_path.iterdir())) == 2  # the result shows the same one
    assert f"saved {tmp_path / 'plot-002.png'} (640 x 480)" in text


async def test_plot_that_cannot_be_saved_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = await shown(output("a", "", PICTURE), plots_folder=tmp_path / "file")
    assert "an image, 640 x 480, could not be saved" in text


async def test_dropped_output_is_said() -> None:
    assert "[7 bytes of output were dropped here]" in await shown(output("a", "x", {"dropped_bytes": 7}))


async def test_closed_pipe_is_raised_once_and_then_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        console = ConsoleConsumer(stream=stream)
        with pytest.raises(BrokenPipeError):
            await deliver_all(console, Run().whole((Content, {"content": "x"})))
        await deliver_all(console, Run().whole((Content, {"content": "y"})))
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)


async def test_slow_terminal_slows_the_run_and_not_the_event_loop() -> None:
    gate = threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            assert gate.wait(LIMIT_S)
            return super().write(text)

    stream = Slow()
    console = ConsoleConsumer(stream=stream)
    run = Run().whole(*[(Content, {"content": f"{number:08}" * 1000}) for number in range(200)])
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        running = group.create_task(deliver_all(console, run))
        for _ in range(1000):
            await asyncio.sleep(0)  # the loop goes on
        assert not running.done()
        gate.set()
    assert stream.getvalue() == "".join(piece for _, piece in texts(run)) + "\n"


async def test_what_a_stream_cannot_encode_is_replaced() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    await deliver_all(ConsoleConsumer(stream=stream), Run().whole(started("a"), output("a", "caf\u00e9\n")))
    assert stream.buffer.getvalue().decode("ascii").endswith("  1 ? caf?\n")


async def test_default_is_stdout_at_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    await deliver(ConsoleConsumer(), Run().event(Error, message="gone"))
    assert capsys.readouterr().out == "error: gone\n"


async def test_rich_is_loaded_only_to_show_something() -> None:
    program = (
        "import sys; from aeolus_sandbox.consumers import ConsoleConsumer; ConsoleConsumer(); "
        "print([name for name in ('rich', 'aeolus_sandbox.tools.code_interpreter') if name in sys.modules])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    assert (await process.communicate())[0] == b"[]\n"


@pytest.mark.parametrize(("variable", "begins"), [("KITTY_WINDOW_ID", "\x1b_Ga=T"), ("NOTHING", None)])
async def test_plots_are_drawn_on_a_terminal_that_can(
    variable: str, begins: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMUX", "TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(variable, "1")
    master, slave = os.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream, os.fdopen(master, "rb", buffering=0) as screen:
        console = ConsoleConsumer(stream=stream, plots_folder=tmp_path, colors=False)
        await deliver_all(console, Run().whole(started("a"), output("a", "", PICTURE)))
        text = screen.read(65536).decode()
    orders = re.findall(r"\x1b_Ga=T|\x1b[^_\\]", text)
    assert orders == ([begins] if begins else [])
    assert "saved" in text
