"""The same work in every language: what the conformance suite runs.

A language that lacks a thing has no cell for it, and the matrix says so.
"""

from typing import Final

LANGUAGES: Final = ("python", "javascript", "typescript", "bash", "r", "wasm")

_JAVASCRIPT: Final = {
    "print": 'console.log("hello")',
    "stderr": 'console.error("oops")',
    "value": "6 * 7",
    "error": 'throw new TypeError("wrong")',
    "middle": 'console.log("before"); throw new Error("middle"); console.log("after")',
    "unicode": 'console.log("héllo wörld 日本 👩‍🔬")',
    "long_line": 'console.log("x".repeat(5 * 1000 * 1000))',
    "flood": 'const line = "y".repeat(99999); for (let i = 0; i < 1000; i++) console.log(line)',
    "html": 'await Deno.jupyter.display({"text/html": "<b>bold</b>", "text/plain": "bold"}, {raw: true})',
    "image": (
        "const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';"
        "await Deno.jupyter.display({'image/png': png}, {raw: true})"
    ),
    "busy": 'console.log("on"); while (true) {}',
    "sleep": 'console.log("on"); await new Promise(r => setTimeout(r, 60000))',
    "set": "var kept = 41",
    "get": "kept + 1",
    "kill": 'console.log("before"); Deno.kill(Deno.pid, "SIGKILL"); await new Promise(r => setTimeout(r, 60000))',
    "memory": "const hoard = []; while (true) hoard.push(new Uint8Array(20_000_000).fill(1))",
    "exit": "Deno.exit(4)",
    "await": "await new Promise(r => setTimeout(() => r(42), 100))",
    "input": 'console.log("got " + prompt("name? "))',
}


def _wasi(body: str, *, pages: int = 1, data: str = "") -> str:
    """Return a module that runs a body; `$say` writes one buffer, of which the address and length are given."""
    return f"""(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") {pages}) {data}
  (func $say (param $fd i32) (param $at i32) (param $length i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $length))
    (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func (export "_start") (local $left i32) {body}))"""


def _wasm_says(text: str, fd: int = 1, then: str = "") -> str:
    length = len(text.encode())
    body = f"(call $say (i32.const {fd}) (i32.const 16) (i32.const {length})) {then}"
    quoted = text.replace("\n", "\\n")
    return _wasi(body, data=f'(data (i32.const 16) "{quoted}")')


_WASM: Final = {
    "print": _wasm_says("hello\n"),
    "stderr": _wasm_says("oops\n", fd=2),
    "value": '(module (func (export "main") (result i32) (i32.mul (i32.const 6) (i32.const 7))))',
    "error": '(module (func (export "main") unreachable))',
    "middle": _wasm_says("before\n", then="unreachable"),
    "unicode": _wasm_says("héllo wörld 日本 👩‍🔬\n"),
    "long_line": _wasi(
        "(memory.fill (i32.const 16) (i32.const 120) (i32.const 5000000))"
        "(i32.store8 (i32.const 5000016) (i32.const 10)) (call $say (i32.const 1) (i32.const 16) (i32.const 5000001))",
        pages=80,
    ),
    "flood": _wasi(
        "(memory.fill (i32.const 16) (i32.const 121) (i32.const 99999)) (i32.store8 (i32.const 100015) (i32.const 10))"
        "(local.set $left (i32.const 1000)) (loop $more"
        " (call $say (i32.const 1) (i32.const 16) (i32.const 100000))"
        " (br_if $more (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))",
        pages=2,
    ),
    "busy": _wasm_says("on\n", then="(loop $ever (br $ever))"),
    "set": '(module $kept (global $n (mut i32) (i32.const 41)) (func (export "get") (result i32) (global.get $n)))',
    "get": (
        '(module (import "kept" "get" (func $get (result i32)))'
        ' (func (export "main") (result i32) (i32.add (call $get) (i32.const 1))))'
    ),
}

CELLS: Final[dict[str, dict[str, str]]] = {
    "python": {
        "print": "print('hello')",
        "stderr": "import sys; print('oops', file=sys.stderr)",
        "value": "6 * 7",
        "error": "raise TypeError('wrong')",
        "middle": "print('before'); raise ValueError('middle'); print('after')",
        "unicode": "print('héllo wörld 日本 👩‍🔬')",
        "long_line": "print('x' * 5_000_000)",
        "flood": "line = 'y' * 99_999\nfor _ in range(1000): print(line)",
        "html": "from IPython.display import HTML, display; display(HTML('<b>bold</b>'))",
        "image": "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()",
        "busy": "print('on', flush=True)\nwhile True: pass",
        "sleep": "import time; print('on', flush=True); time.sleep(60)",
        "set": "kept = 41",
        "get": "kept + 1",
        "kill": "import os; print('before', flush=True); os.kill(os.getpid(), 9)",
        "memory": "hoard = []\nwhile True: hoard.append(bytearray(b'x' * 20_000_000))",
        "exit": "import os; os._exit(4)",
        "await": "import asyncio; await asyncio.sleep(0.1, 42)",
        "input": "answer = input('name? '); print('got ' + answer)",
    },
    "javascript": _JAVASCRIPT,
    "typescript": {
        **_JAVASCRIPT,
        "value": "const six: number = 6; six * 7",
        "set": "var kept: number = 41",
    },
    "bash": {
        "print": "echo hello",
        "stderr": "echo oops >&2",
        "error": "false",
        "middle": "echo before; ls /nowhere-at-all && echo after; (exit 3)",
        "unicode": "echo 'héllo wörld 日本 👩‍🔬'",
        "long_line": "head -c 5000000 /dev/zero | tr '\\0' x; echo",
        "flood": "yes \"$(head -c 99999 /dev/zero | tr '\\0' y)\" | head -n 1000",
        "busy": "echo on; while :; do :; done",
        "sleep": "echo on; sleep 60",
        "set": "kept=41",
        "get": "echo $((kept + 1))",
        "kill": "echo before; kill -9 $$",
        "memory": "hoard=x; while :; do hoard=$hoard$hoard; done",
        "exit": "exit 4",
        "input": "echo -n 'name? '; read answer; echo \"got $answer\"",
    },
    "r": {
        "print": 'cat("hello\\n")',
        "stderr": 'message("oops")',
        "value": "6 * 7",
        "error": 'stop("wrong")',
        "middle": 'cat("before\\n"); stop("middle"); cat("after\\n")',
        "unicode": 'cat("héllo wörld 日本 👩‍🔬\\n")',
        "long_line": 'cat(strrep("x", 5e6), "\\n", sep = "")',
        "flood": 'line <- strrep("y", 99999); for (i in 1:1000) cat(line, "\\n", sep = "")',
        "html": "data.frame(a = 1:2)",
        "image": "plot(1:3)",
        "busy": 'cat("on\\n"); flush.console(); while (TRUE) {}',
        "sleep": 'cat("on\\n"); flush.console(); Sys.sleep(60)',
        "set": "kept <- 41",
        "get": "kept + 1",
        "kill": 'cat("before\\n"); flush.console(); tools::pskill(Sys.getpid(), 9)',
        "memory": "hoard <- list(); while (TRUE) hoard[[length(hoard) + 1]] <- rep(1.5, 2.5e6)",
        "exit": "quit(status = 4)",
        "input": 'answer <- readline("name? "); cat("got ", answer, "\\n", sep = "")',
    },
    "wasm": _WASM,
}
