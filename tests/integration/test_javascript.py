"""JavaScript and TypeScript: what Deno's kernel leaves out or loses arrives all the same, in order."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aeolus_sandbox import Buffer, EndOfInput, LimitName, Limits, SessionManager, Text, Window
from aeolus_sandbox.limits import MIB
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code, shared_manager

pytestmark = pytest.mark.docker

PROMPT_S: Final = 5.0
LOST: Final = "the kernel was replaced: its variables are lost"
PNG: Final = "new Uint8Array([137, 80, 78, 71, 13, 10, 26, 10, 1])"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(
    shared: SessionManager, code: str, *, language: str = "javascript", key: str = "js", **settings: Any
) -> Ran:
    """Run a cell in a kernel that this module's tests share."""
    return await run_code(shared, code, language=language, session_id=key, **settings)


def outline(ran: Ran) -> list[tuple[str, str]]:
    """Return what came, with neighbours of one kind joined."""
    joined: list[tuple[str, str]] = []
    for chunk in ran.chunks:
        if joined and joined[-1][0] == chunk.stream:
            joined[-1] = (chunk.stream, joined[-1][1] + chunk.content)
        else:
            joined.append((chunk.stream, chunk.content))
    return joined


async def assert_lost(shared: SessionManager) -> None:
    """Assert that the next cell runs in a new kernel, and says so once."""
    ran = await cell(shared, "console.log('alive', 'mark' in globalThis)")
    assert (ran.text(), ran.result.environment_recreated) == ("alive false\n", True)
    assert [chunk.content for chunk in ran.of("status")] == [LOST]
    assert not (await cell(shared, "1")).result.environment_recreated


VALUES: Final = {
    "6 * 7": [("result", "42")],
    "const d = await new Promise(r => setTimeout(() => r(42), 20)); d": [("result", "42")],
    "const d = 1; d": [("result", "1")],
    "'a' + 'b'": [("result", '"ab"')],
    "({ a: [1, { b: 2n }], s: 'x' })": [("result", '{ a: [ 1, { b: 2n } ], s: "x" }')],
    "new Map([['k', 1]])": [("result", 'Map(1) { "k" => 1 }')],
    "new Promise(() => {})": [("result", "Promise { <pending> }")],
    "undefined": [],
    "": [],
    "// nothing": [],
    "console.log('a'); console.error('b'); console.log('c'); 5": [
        ("stdout", "a\n"),
        ("stderr", "b\n"),
        ("stdout", "c\n"),
        ("result", "5"),
    ],
    "process.stdout.write('a'); Deno.stdout.writeSync(new TextEncoder().encode('é')); undefined": [
        ("stdout", "aé")
    ],
    "await Deno.stderr.write(new TextEncoder().encode('e')); undefined": [("stderr", "e")],
    r"console.log('😀 \ud800 \0 \x1b[31mred\x1b[0m')": [("stdout", "😀 \ufffd \0 \x1b[31mred\x1b[0m\n")],
    "console.log('%s is %d', 'x', 1)": [("stdout", "x is 1\n")],
    "require": [("error", "ReferenceError: require is not defined")],
}


async def test_values_and_text_arrive_once_and_in_order(shared: SessionManager) -> None:
    for code, expected in VALUES.items():
        ran = await cell(shared, code)
        got = [(stream, text.partition("\n    at ")[0]) for stream, text in outline(ran)]
        assert (code, got) == (code, expected)
        assert ran.result.success == all(stream != "error" for stream, _ in expected)


async def test_text_before_and_after_a_display_keeps_its_place(shared: SessionManager) -> None:
    code = (
        "for (let i = 0; i < 50; i++) {\n  console.log(`a${i}`); await Deno.jupyter.display({'text/plain': `d${i}`}, "
        "{raw: true}); console.error(`e${i}`);\n}\nthrow new Error('end')"
    )
    ran = await cell(shared, code)
    wanted = [
        (stream, text)
        for i in range(50)
        for stream, text in (("stdout", f"a{i}\n"), ("display", f"d{i}"), ("stderr", f"e{i}\n"))
    ]
    assert outline(ran)[:-1] == wanted
    assert (ran.error_name, ran.error_value) == ("Error", "end")


async def test_types_are_stripped_and_not_checked(shared: SessionManager) -> None:
    code = "interface P { n: number }\nenum E { A = 7 }\nconst p: P = { n: 'str' as any };\n`${p.n} ${E.A satisfies E}`"
    for language in ("typescript", "JS"):
        ran = await run_code(shared, code, language=language)
        assert ran.result.result == '"str 7"'


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ('throw "plain"', "Error", "plain"),
        ("(() => { throw new TypeError('bad') })()", "TypeError", "bad"),
        ("await Promise.reject(new RangeError('later'))", "RangeError", "later"),
        ("const = 3", "SyntaxError", "line 1, column 7"),
        ("1;\n2;\nif (true) {", "SyntaxError", "line 3"),
        ("'open", "SyntaxError", "line 1"),
        ("return 5", "SyntaxError", "Illegal return"),
        ('import chalk from "npm:chalk"; chalk', "TypeError", "chalk"),
        ('const { default: chalk } = await import("npm:chalk"); chalk', "TypeError", "chalk"),
        ('await import("jsr:@std/assert")', "TypeError", "jsr"),
        ('await fetch("http://192.0.2.1/")', "TypeError", "fetch failed"),
    ],
)
async def test_every_failure_says_what_it_was(
    shared: SessionManager, code: str, name: str, value: str
) -> None:
    ran = await cell(shared, code)
    assert ran.error_name == name
    assert value in ran.error_value
    assert name in ran.text("error")
    assert not ran.result.success
    assert ran.seconds < PROMPT_S
    assert (await cell(shared, "'alive'")).result.result == '"alive"'


async def test_errors_have_a_traceback_and_syntax_errors_show_the_place(shared: SessionManager) -> None:
    ran = await cell(shared, "function f() { throw new TypeError('bad') }\nf()")
    assert "TypeError: bad\n    at f (" in ran.text("error")
    ran = await cell(shared, "let ok = 1;\nconst = 3")
    assert ran.text("error").splitlines()[-2:] == ["const = 3", "      ^"]


async def test_promise_that_nobody_awaits_is_told_and_ends_nothing(shared: SessionManager) -> None:
    ran = await cell(shared, "globalThis.mark = 1; Promise.reject(new Error('boom')); 1")
    later = await cell(
        shared,
        "setTimeout(() => { throw new Error('late') }, 1); await new Promise(r => setTimeout(r, 50)); mark",
    )
    assert (ran.result.result, later.result.result) == ("1", "1")
    assert "Uncaught Error: boom" in ran.text("stderr") + later.text("stderr")  # it may come late
    assert "Uncaught Error: late" in later.text("stderr")


@pytest.mark.parametrize(
    ("code", "stream", "mime", "content"),
    [
        ("await Deno.jupyter.display({'text/html': '<i>a</i>', 'text/plain': 'a'}, {raw: true})", "display", "text/html", "<i>a</i>"),
        ("Deno.jupyter.html`<b>${1 + 1}</b>`", "result", "text/html", "<b>2</b>"),
        ("Deno.jupyter.md`# head`", "result", "text/markdown", "# head"),
        ("Deno.jupyter.svg`<svg/>`", "image", "image/svg+xml", "<svg/>"),
        ("await Deno.jupyter.display({'application/json': {a: [1, null]}}, {raw: true})", "display", "application/json", '{"a":[1,null]}'),
        (PNG, "image", "image/png", "iVBORw0KGgoB"),
        (f"Deno.writeFileSync('p.png', {PNG}); Deno.jupyter.image('p.png')", "image", "image/png", "iVBORw0KGgoB"),
        ("({ [Symbol.for('Jupyter.display')]: () => ({'text/html': '<p>own</p>'}) })", "result", "text/html", "<p>own</p>"),
    ],
)  # fmt: skip
async def test_rich_types(shared: SessionManager, code: str, stream: str, mime: str, content: str) -> None:
    [chunk] = (await cell(shared, code)).chunks
    text = json.dumps(json.loads(chunk.content), separators=(",", ":")) if "json" in mime else chunk.content
    assert (chunk.stream, chunk.mime_type, text) == (stream, mime, content)


async def test_display_updates_name_their_display(shared: SessionManager) -> None:
    code = (
        "const show = (text, update) => Deno.jupyter.display({'text/plain': text}, {raw: true, display_id: 'me', update});\n"
        "await show('one', false); await show('two', true)"
    )
    ran = await cell(shared, code)
    shown = [(chunk.display_id, chunk.update, chunk.content) for chunk in ran.of("display")]
    assert shown == [("me", False, "one"), ("me", True, "two")]


async def test_values_that_cannot_be_shown_are_errors(shared: SessionManager) -> None:
    code = "({ [Symbol.for('Jupyter.display')]: () => { throw new Error('no picture') } })"
    ran = await cell(shared, code)
    assert (ran.error_value, ran.result.success) == ("no picture", False)


async def test_much_output_arrives_whole(shared: SessionManager) -> None:
    ran = await cell(shared, "for (let i = 0; i < 100_000; i++) console.log(i)")
    assert ran.text() == "".join(f"{i}\n" for i in range(100_000))
    ran = await cell(shared, "console.log('😀'.repeat(2_500_000))")
    assert ran.text() == "😀" * 2_500_000 + "\n"
    assert len(ran.result.output) <= 8000


async def test_loop_that_prints_waits_for_its_reader_and_takes_no_memory(shared: SessionManager) -> None:
    code = "const line = 'y'.repeat(1000);\nfor (let i = 0; i < 100_000; i++) console.log(line);\n'whole'"
    policy, limits = Window(max_chunks=10), Limits(memory_bytes=256 * MIB, output_bytes=1_000_000)
    async with await open_code(shared, code, language="js", policy=policy, limits=limits) as session:
        result = await finish(session)
        dropped = session.context_window().bytes_dropped
    assert result.result == '"whole"'
    assert dropped > 95_000_000


async def test_flood_without_end_hits_the_output_limit_and_spares_the_kernel(shared: SessionManager) -> None:
    async with await open_code(
        shared,
        "globalThis.mark = 1;\nwhile (true) console.log('y'.repeat(1000))",
        language="js",
        session_id="js",
        policy=Buffer(),
        limits=Limits(output_bytes=2_000_000),
    ) as session:
        result = await finish(session)
    assert (result.status.reason, result.status.limit_hit) == ("output_limit", LimitName.OUTPUT_BYTES)
    assert (await cell(shared, "mark")).result.result == "1"


async def test_display_over_the_limit_announces_itself(shared: SessionManager) -> None:
    ran = await cell(shared, "await Deno.jupyter.display({'text/html': 'x'.repeat(40_000_000)}, {raw: true})")
    assert ran.result.success
    assert "left out: output of 40" in ran.text("stderr")


async def test_what_is_written_into_the_pipe_by_hand_harms_nothing(shared: SessionManager) -> None:
    code = (
        "for await (const d of Deno.readDir('/tmp')) {\n"
        "  try { const f = Deno.openSync(`/tmp/${d.name}/output`, {write: true}); globalThis.pipe = f } catch {}\n}\n"
        "const put = t => pipe.writeSync(new TextEncoder().encode(t));\n"
        "put('garbage\\n'); put('[1,2]\\n'); put('[\"status\",{\"execution_state\":\"idle\"}]\\n'); put('['.repeat(1e4) + '\\n');\n"
        'put(\'["stream",7]\\n\'); put(\'["stream",{"name":"x","text":5}]\\n\');\n'
        "console.log('after')"
    )
    ran = await cell(shared, code)
    assert ran.text() == "after\n"
    assert ran.text("stderr").count("left out") == 6
    assert ran.result.success


async def test_asking_for_input_ends_at_once(shared: SessionManager) -> None:
    ran = await cell(shared, "[prompt('name?'), confirm('sure?')]")
    assert (ran.result.result, ran.seconds < PROMPT_S) == ("[ null, false ]", True)


async def test_exit_is_a_dead_kernel_with_its_code(shared: SessionManager) -> None:
    ran = await cell(shared, "globalThis.mark = 1; console.log('before'); Deno.exit(4)")
    assert (ran.text(), ran.error_name) == ("before\n", "KernelDied")
    assert "exited with code 4" in ran.error_value
    assert (ran.result.status.reason, ran.result.status.code) == ("exited", 4)
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_interrupted_loop_keeps_its_state(shared: SessionManager) -> None:
    ran = await cell(shared, "globalThis.mark = 1; console.log('begun'); while (true) {}", timeout_s=1)
    assert (ran.text(), ran.error_name) == ("begun\n", "KeyboardInterrupt")
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
    after = await cell(shared, "mark")
    assert (after.result.result, after.result.environment_recreated) == ("1", False)


@pytest.mark.parametrize(
    "wait",
    [
        "setTimeout(() => console.log('begun'), 50); await new Promise(r => setTimeout(r, 30000))",
        "for (let i = 0; ; i++) { await new Promise(r => setTimeout(r, 1)); if (i === 20) console.log('begun') }",
    ],
)
async def test_interrupted_await_ends_and_says_whether_its_kernel_is_lost(
    shared: SessionManager, wait: str
) -> None:
    async with await open_code(
        shared, f"globalThis.mark = 1; {wait}", language="js", session_id="js"
    ) as session:
        await read_until(session, "begun")
        async with asyncio.timeout(PROMPT_S):
            await session.cancel()
            result = await session.finalize()
    assert result.status.reason == "cancelled"
    assert result.error is not None
    assert result.error.name in {
        "KernelDied",
        "KeyboardInterrupt",
    }  # Deno keeps its state where code was running
    if result.error.name == "KernelDied":
        await assert_lost(shared)
    else:
        assert (await cell(shared, "mark")).result.result == "1"


@pytest.mark.parametrize(
    "bomb",
    ["const kept = []; while (true) kept.push({ a: [1, 2, 3] })", "const kept = []; while (true) kept.push(new Uint8Array(2 ** 24).fill(1))"],
)  # fmt: skip
async def test_out_of_memory_says_so_with_the_limit(shared: SessionManager, bomb: str) -> None:
    ran = await run_code(shared, bomb, language="js", limits=Limits(memory_bytes=256 * MIB))
    assert "out of memory, limit 256 MiB" in ran.text("error")
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("out_of_memory", LimitName.MEMORY)


async def test_garbage_of_many_times_the_memory_is_collected(shared: SessionManager) -> None:
    code = "let kept;\nfor (let i = 0; i < 12; i++) kept = Array.from({ length: 500_000 }, (_, n) => ({ n }));\nkept.length"
    ran = await run_code(shared, code, language="js", limits=Limits(memory_bytes=512 * MIB))
    assert ran.result.result == "500000"


async def test_cells_of_one_session_that_are_opened_at_once_run_in_order(shared: SessionManager) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(
            cell(
                shared,
                "globalThis.order = [1]; await new Promise(r => setTimeout(r, 200)); throw new Error('x')",
            )
        )
        second = group.create_task(cell(shared, "order.push(2); console.log('second')"))
        third = group.create_task(cell(shared, "order.push(3); order"))
    assert first.result().error_name == "Error"
    assert second.result().text() == "second\n"
    assert third.result().result.result == "[ 1, 2, 3 ]"


async def test_late_output_is_marked_and_not_lost(shared: SessionManager) -> None:
    await cell(shared, "setTimeout(() => console.log('late'), 100); 1")
    await run_code(shared, "await new Promise(r => setTimeout(r, 300))", language="js")  # time passes
    ran = await cell(shared, "console.log('own')")
    assert sorted(ran.text().splitlines()) == ["late", "own"]
    assert [chunk.content for chunk in ran.chunks if chunk.background] == ["late\n"]


async def test_files_and_node_modules_work(shared: SessionManager) -> None:
    code = "import fs from 'node:fs';\nfs.writeFileSync('b.txt', Deno.readTextFileSync('a.txt') + '!');\nfs.readdirSync('.').length + fs.readFileSync('b.txt', 'utf8')"
    ran = await run_code(shared, code, language="js", files={"a.txt": b"caf\xc3\xa9"})
    assert ran.result.result == '"2café!"'


async def test_prompt_gets_the_callers_answer(shared: SessionManager) -> None:
    code = "const name = prompt('name?'); console.log(`hi ${name}`, prompt('more?'))"
    async with await open_code(shared, code, language="js", session_id="js", allow_stdin=True) as session:
        await session.send_stdin(Text("Zoë\n"))
        await session.send_stdin(EndOfInput())
        result = await finish(session)
    assert result.output == "hi Zoë null\n"
