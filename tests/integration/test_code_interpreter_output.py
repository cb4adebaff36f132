"""What code prints, shows, returns and raises arrives as typed chunks, complete and in order."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aeolus_sandbox import Buffer, LimitName, Limits, SessionManager, Window
from tests.integration.code_runs import Ran, finish, open_code, run_code, shared_manager
from tests.integration.running import resident_bytes

pytestmark = pytest.mark.docker

PNG: Final = b"\x89PNG\r\n\x1a\n"
FIGURE: Final = "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1,2]); "


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a cell in the kernel that this module's tests share."""
    return await run_code(shared, code, session_id="output", **settings)


async def test_text_value_and_success(shared: SessionManager) -> None:
    ran = await cell(shared, "print('one')\n6 * 7")
    assert [(c.stream, c.content, c.mime_type) for c in ran.chunks] == [
        ("stdout", "one\n", "text/plain"),
        ("result", "42", "text/plain"),
    ]
    assert (ran.result.success, ran.result.result, ran.result.output) == (True, "42", "one\n")
    assert ran.result.status.ok
    assert ran.result.execution_time_ms > 0


async def test_stdout_and_stderr_keep_their_order(shared: SessionManager) -> None:
    code = "import sys\nfor i in range(50):\n    print(f'o{i}', flush=True); print(f'e{i}', file=sys.stderr, flush=True)"
    ran = await cell(shared, code)
    joined = "".join(chunk.content for chunk in ran.chunks)
    assert joined == "".join(f"o{i}\ne{i}\n" for i in range(50))
    assert ran.text("stderr") == "".join(f"e{i}\n" for i in range(50))


async def test_output_arrives_while_the_code_runs(shared: SessionManager) -> None:
    code = "import os, time\nprint('first')\nwhile not os.path.exists('/tmp/never'): time.sleep(0.05)"
    async with await open_code(shared, code, session_id="output") as session:
        chunk = await session.next_chunk()
        assert chunk is not None
        assert chunk.content == "first\n"
        assert session.status is None


@pytest.mark.parametrize(
    ("expression", "mime", "content"),
    [
        ("HTML('<b>bold</b>')", "text/html", "<b>bold</b>"),
        ("Markdown('# head')", "text/markdown", "# head"),
        ("Latex('$x^2$')", "text/latex", "$x^2$"),
        ("Javascript('1;')", "application/javascript", "1;"),
        ("SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')", "image/svg+xml", "<svg"),
    ],
)
@pytest.mark.parametrize("how", ["display", "value"])
async def test_rich_types(shared: SessionManager, expression: str, mime: str, content: str, how: str) -> None:
    shown = f"display({expression})" if how == "display" else expression
    ran = await cell(shared, f"from IPython.display import *\n{shown}")
    [chunk] = ran.chunks
    assert chunk.mime_type == mime
    assert content in chunk.content
    assert chunk.data.decode() == chunk.content
    assert "text/plain" in chunk.alternatives
    expected = "image" if mime.startswith("image/") else "display" if how == "display" else "result"
    assert chunk.stream == expected


async def test_json_display_is_json_text(shared: SessionManager) -> None:
    ran = await cell(shared, "from IPython.display import JSON\ndisplay(JSON({'ä': [1, None, 2.5, True]}))")
    [chunk] = ran.of("display")
    assert chunk.mime_type == "application/json"
    assert json.loads(chunk.content) == {"ä": [1, None, 2.5, True]}


async def test_types_of_other_programs_pass(shared: SessionManager) -> None:
    ran = await cell(shared, "display({'application/vnd.acme.thing+json': {'a': 1}}, raw=True)")
    [chunk] = ran.of("display")
    assert (chunk.mime_type, json.loads(chunk.content)) == ("application/vnd.acme.thing+json", {"a": 1})


async def test_data_frame_is_html_with_plain_text_beside(shared: SessionManager) -> None:
    ran = await cell(shared, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
    [chunk] = ran.of("result")
    assert chunk.mime_type == "text/html"
    assert "<table" in chunk.content
    assert chunk.alternatives["text/plain"] == "   a  b\n0  1  x\n1  2  y"
    assert ran.result.result == "   a  b\n0  1  x\n1  2  y"


async def test_display_updates_name_their_display(shared: SessionManager) -> None:
    ran = await cell(shared, "h = display('one', display_id='me'); h.update('two'); h.update('three')")
    shown = [(c.display_id, c.update, c.content) for c in ran.of("display")]
    assert shown == [("me", False, "'one'"), ("me", True, "'two'"), ("me", True, "'three'")]


async def test_animation_shows_a_picture_again(shared: SessionManager) -> None:
    code = (
        "from IPython.display import SVG\na, b = SVG('<svg><g/></svg>'), SVG('<svg><a/></svg>')\n"
        "h = display(a, display_id='film'); h.update(b); h.update(a)"
    )
    ran = await cell(shared, code)
    assert ["<a" in chunk.content for chunk in ran.of("image")] == [False, True, False]


@pytest.mark.parametrize(
    ("code", "images"),
    [
        (FIGURE + "fig", 1),
        (FIGURE + "plt.show()", 1),
        (FIGURE + "fig2, ax2 = plt.subplots(); ax2.plot([2, 1]); plt.show()", 2),
        (FIGURE + "plt.savefig('/tmp/a.png'); plt.close()", 0),
    ],
)
async def test_a_figure_is_shown_once_in_each_cell(shared: SessionManager, code: str, images: int) -> None:
    for _ in range(2):  # what was shown in one cell is shown in the next one too
        ran = await cell(shared, code)
        assert len(ran.of("image")) == ran.result.images == images
        assert all(image.data.startswith(PNG) for image in ran.of("image"))
        assert len({image.content for image in ran.of("image")}) == images


async def test_error_has_name_value_and_traceback(shared: SessionManager) -> None:
    ran = await cell(shared, "def f():\n    return 1/0\nprint('before')\nf()")
    assert (ran.result.success, ran.result.status.code) == (False, 1)
    assert (ran.error_name, ran.error_value) == ("ZeroDivisionError", "division by zero")
    assert ran.result.error is not None
    assert "return 1/0" in "".join(ran.result.error.traceback).replace("\x1b[39m", "") or any(
        "1" in line for line in ran.result.error.traceback
    )
    assert ran.text() == "before\n"
    assert "ZeroDivisionError" in ran.text("error")
    assert "ZeroDivisionError: division by zero" in ran.result.as_text()


@pytest.mark.parametrize(
    ("code", "name"),
    [("x = (1 +", "SyntaxError"), ("if True:\nprint(1)", "IndentationError"), ("'unclosed", "SyntaxError")],
)
async def test_syntax_errors_are_errors(shared: SessionManager, code: str, name: str) -> None:
    ran = await cell(shared, code)
    assert (ran.error_name or "").endswith("Error")
    assert ran.error_name in {name, "SyntaxError", "_IncompleteInputError"}


@pytest.mark.parametrize("code", ["", "\n\n", "# only a comment", "None"])
async def test_code_without_output_succeeds_and_says_so(shared: SessionManager, code: str) -> None:
    ran = await cell(shared, code)
    assert (ran.result.success, ran.chunks, ran.result.result) == (True, [], None)
    assert "(no output)" in ran.result.as_text()


async def test_one_long_line_arrives_whole(shared: SessionManager) -> None:
    ran = await cell(shared, "print('x' * 5_000_000, end='')")
    assert ran.text() == "x" * 5_000_000
    assert len(ran.result.output) <= 8000
    assert "characters left out" in ran.result.output


async def test_many_small_prints_arrive_complete(shared: SessionManager) -> None:
    ran = await cell(shared, "for i in range(100_000): print(i)")
    assert ran.text() == "".join(f"{i}\n" for i in range(100_000))


async def test_image_over_the_limit_announces_itself(shared: SessionManager) -> None:
    code = "import base64; display({'image/png': base64.b64encode(bytes(16_000_000)).decode()}, raw=True)"
    ran = await cell(shared, code)
    assert ran.result.success
    assert ran.of("image") == []
    assert "image/png left out" in ran.text("display")


async def test_large_image_arrives_whole(shared: SessionManager) -> None:
    code = "import os; data = os.urandom(9_000_000)\nfrom IPython.display import Image\nImage(data, format='png')"
    ran = await cell(shared, code)
    [image] = ran.of("image")
    assert len(base64.b64decode(image.content)) == len(image.data) == 9_000_000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (r"print('a\ud800b')", "a\ufffdb\n"),
        (r"print('n\x00l')", "n\0l\n"),
        (r"import os; _ = os.write(1, b'caf\xe9\n')", None),
        ("print('still here')", "still here\n"),
        ("print('h\u00e9llo w\u00f6rld \U0001f600')", "h\u00e9llo w\u00f6rld \U0001f600\n"),
    ],
)
async def test_text_that_is_no_text_loses_nothing(
    shared: SessionManager, code: str, expected: str | None
) -> None:
    ran = await cell(shared, code)
    assert ran.result.success
    if expected is not None:
        assert ran.text() == expected
    else:
        assert "caf" in ran.text() + ran.text("stderr")
    ran.result.model_dump_json().encode()
    assert all(chunk.model_dump_json().encode() for chunk in ran.chunks)


async def test_surrogates_in_errors_and_file_names(shared: SessionManager) -> None:
    ran = await cell(shared, r"raise ValueError('a\ud800\x00b')")
    assert ran.error_name == "ValueError"
    assert "\ufffd" in ran.error_value
    assert "\0" in ran.error_value
    ran = await cell(shared, r"open('f\udce9.txt', 'w').write('x'); import os; print(os.listdir('.'))")
    assert ran.result.success
    ran.result.as_text().encode()
    ran = await cell(shared, "print('still here')")
    assert ran.text() == "still here\n"


async def test_code_with_a_lone_surrogate_is_run(shared: SessionManager) -> None:
    ran = await cell(shared, "print(len('a\ud800b'))")
    assert ran.text() == "3\n"


async def test_window_drops_and_counts_a_flood(shared: SessionManager) -> None:
    code = "for i in range(400): print(f'{i:05}' * 2000, flush=True)"
    policy = Window(max_chunks=10)
    limits = Limits(output_bytes=1_000_000)
    before = resident_bytes()
    async with await open_code(shared, code, limits=limits, policy=policy, session_id="output") as session:
        result = await session.finalize()
        window = session.context_window()
        chunks = [chunk async for chunk in session]
    assert result.success
    assert window.chunks_held <= 10
    assert window.bytes_dropped > 2_000_000
    assert chunks[0].dropped_bytes == window.bytes_dropped
    assert "00399" in chunks[-1].content
    assert resident_bytes() - before < 64_000_000


async def test_flood_without_end_hits_the_output_limit(shared: SessionManager) -> None:
    limits = Limits(output_bytes=2_000_000)
    before = resident_bytes()
    async with await open_code(
        shared, "while True: print('y' * 1000)", limits=limits, policy=Buffer()
    ) as session:
        result = await finish(session)
    assert (result.status.reason, result.status.limit_hit) == ("output_limit", LimitName.OUTPUT_BYTES)
    assert resident_bytes() - before < 128_000_000
