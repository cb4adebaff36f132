"""WebAssembly in the code interpreter: modules run, keep state by name, print, trap, and can be interrupted."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aeolus_sandbox import Limits, SessionManager
from aeolus_sandbox.limits import MIB
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code, shared_manager

pytestmark = pytest.mark.docker

WASI: Final = "wasi_snapshot_preview1"
HELLO: Final = f"""
  (import "{WASI}" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "begun\\n")
  (func $hello (param $fd i32)
    (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 6))
    (drop (call $write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))"""
COUNTER: Final = """(module $counter
  (global $n (mut i32) (i32.const 0))
  (func (export "next") (result i32)
    (global.set $n (i32.add (global.get $n) (i32.const 1)))
    (global.get $n)))"""
NEXT: Final = (
    '(module (import "counter" "next" (func $f (result i32))) (func (export "main") (result i32) call $f))'
)
ANSWER: Final = '(module (func (export "main") (result i32) i32.const 42))'
ANSWER_BYTES: Final = bytes.fromhex(
    "0061736d010000000105016000017f03020100070801046d61696e00000a06010400412a0b"
)


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a cell in the kernel that this module's tests share."""
    return await run_code(shared, code, language="wasm", session_id="wasm", **settings)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (ANSWER, 42),
        (
            '(module (func (export "a") (result i32) i32.const 1) (func (export "b") (result f64) f64.const 0.5))',
            0.5,
        ),
        ('(module (func (export "b") (result i32 i64) i32.const -1 i64.const 7))', [-1, 7]),
        ('(module (func (export "b") (param i32) (result i32) i32.const 1))', None),
        ("(module)", None),
        ("", None),
        (";; a comment\n(; another ;) " + ANSWER, 42),
        (base64.b64encode(ANSWER_BYTES).decode(), 42),
    ],
)
async def test_the_value_is_text_and_json(shared: SessionManager, code: str, value: object) -> None:
    ran = await cell(shared, code)
    assert ran.result.success, ran.result.error
    if value is None:
        assert ran.of("result") == []
        return
    [chunk] = ran.of("result")
    assert (chunk.mime_type, json.loads(chunk.content)) == ("application/json", value)
    assert chunk.alternatives == {"text/plain": str(value)}
    assert ran.result.result == str(value)


async def test_numbers_that_json_has_not_are_text(shared: SessionManager) -> None:
    for constant, text in (
        ("f64.const nan", "nan"),
        ("f64.const inf", "inf"),
        ("i64.const 0x7fffffffffffffff", str(2**63 - 1)),
    ):
        ran = await cell(shared, f'(module (func (export "main") (result {constant[:3]}) {constant}))')
        assert [(chunk.mime_type, chunk.content) for chunk in ran.of("result")] == [("text/plain", text)]


async def test_files_of_the_workspace_run(shared: SessionManager) -> None:
    files = {"answer.wasm": ANSWER_BYTES, "lib.wat": COUNTER.encode()}
    assert (await cell(shared, ";; run: answer.wasm", files=files)).result.result == "42"
    assert (await cell(shared, ";; run: lib.wat as counter")).result.success
    assert (await cell(shared, NEXT)).result.result == "1"
    assert (await cell(shared, ";; run: missing.wasm")).error_name == "FileNotFoundError"


async def test_a_named_module_is_kept_with_its_state(shared: SessionManager) -> None:
    assert (await cell(shared, COUNTER)).of("result") == []
    assert [(await cell(shared, NEXT)).result.result for _ in range(3)] == ["1", "2", "3"]
    await cell(shared, COUNTER)  # defined anew, it begins anew
    assert (await cell(shared, NEXT)).result.result == "1"


async def test_output_is_streamed_and_its_two_kinds_are_apart(shared: SessionManager) -> None:
    ran = await cell(shared, f'(module {HELLO} (func (export "_start") (call $hello (i32.const 1))))')
    assert (ran.text(), ran.text("stderr")) == ("begun\n", "")
    ran = await cell(shared, f'(module {HELLO} (func (export "_start") (call $hello (i32.const 2))))')
    assert (ran.text(), ran.text("stderr")) == ("", "begun\n")


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("(module\n (func (reslt i32)))", "SyntaxError", "(line 2, column 9)"),
        ("hello", "SyntaxError", "(line 1, column 1)"),
        (
            "(module (func (result i32) i64.const 1))",
            "CompileError",
            "type mismatch: expected i32, found i64",
        ),
        ('(module (import "a" "b" (func)))', "LinkError", "unknown import: `a::b`"),
        ('(module (func (export "f") unreachable))', "Trap", "unreachable"),
        ('(module (func $f (export "f") (call $f)))', "Trap", "call stack exhausted"),
        ("(module (memory 1) (func $s i32.const 70000 i32.load drop) (start $s))", "Trap", "out of bounds"),
    ],
)
async def test_errors_say_what_and_where(shared: SessionManager, code: str, name: str, value: str) -> None:
    ran = await cell(shared, code)
    assert ran.error_name == name
    assert value in ran.error_value
    assert value in ran.text("error")
    assert (await cell(shared, ANSWER)).result.result == "42"


async def test_a_trap_shows_the_calls_that_led_to_it(shared: SessionManager) -> None:
    code = (
        "(module $m (func $divide (param i32) (result i32) (i32.div_s (i32.const 1) (local.get 0)))"
        ' (func $outer (export "main") (result i32) (call $divide (i32.const 0))))'
    )
    ran = await cell(shared, code)
    assert (ran.error_name, ran.error_value) == ("Trap", "integer divide by zero")
    trace = ran.text("error")
    assert 0 < trace.index("m!divide") < trace.index("m!outer")


@pytest.mark.parametrize(("code", "error"), [(0, None), (3, "3")])
async def test_exit_code_of_a_program(shared: SessionManager, code: int, error: str | None) -> None:
    module = (
        f'(module (import "{WASI}" "proc_exit" (func $exit (param i32))) (memory (export "memory") 1)'
        f' (func (export "_start") (call $exit (i32.const {code}))))'
    )
    ran = await cell(shared, module)
    assert ran.result.success == (error is None)
    assert error is None or (ran.error_name, ran.error_value) == ("ExitStatus", error)


@pytest.mark.parametrize("body", ["(loop (br 0))", "(loop (call $hello (i32.const 1)) (br 0))"])
async def test_an_endless_loop_is_interrupted_and_the_kernel_lives(shared: SessionManager, body: str) -> None:
    await cell(shared, COUNTER)
    await cell(shared, NEXT)
    code = f'(module {HELLO} (func (export "main") (call $hello (i32.const 1)) {body}))'
    async with (
        asyncio.timeout(30),
        await open_code(shared, code, language="wasm", session_id="wasm") as session,
    ):
        await read_until(session, "begun")
        await session.cancel()
        assert (await finish(session)).status.reason == "cancelled"
    ran = await cell(shared, NEXT)
    assert (ran.result.result, ran.result.environment_recreated) == ("2", False)


async def test_memory_that_does_not_fit_is_refused_to_the_module(manager: SessionManager) -> None:
    grow = '(module (memory 1) (func (export "main") (result i32) (memory.grow (i32.const 4000))))'  # 250 MiB
    small = Limits(memory_bytes=256 * MIB)
    assert (await run_code(manager, grow, language="wasm", limits=small)).result.result == "-1"


async def test_a_module_reads_and_writes_the_workspace_and_nothing_else(shared: SessionManager) -> None:
    opened = f"""(module
      (import "{WASI}" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data (i32.const 16) "PATH")
      (func (export "main") (result i32)
        (call $open (i32.const FOLDER) (i32.const 0) (i32.const 16) (i32.const LENGTH) (i32.const FLAGS)
          (i64.const 64) (i64.const 0) (i32.const 0) (i32.const 8))))"""

    async def open_file(path: str, *, creates: bool, folder: int = 3) -> str | None:
        settings = {"PATH": path, "LENGTH": str(len(path)), "FLAGS": str(int(creates)), "FOLDER": str(folder)}
        code = opened
        for name, value in settings.items():
            code = code.replace(name, value)
        return (await cell(shared, code)).result.result

    assert await open_file("new.txt", creates=True) == "0"
    assert await open_file("new.txt", creates=False, folder=4) == "0"
    for outside in ("../etc/passwd", "/etc/passwd"):
        assert await open_file(outside, creates=False) not in ("0", None)
    assert await open_file("new.txt", creates=False, folder=5) not in ("0", None)
