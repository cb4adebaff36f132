"""The WebAssembly kernel's own process: modules run by wasmtime, with WASI's files and output.

Run by path (`python -P .../wasm_kernel.py CONNECTION_FILE`). A cell is one of

- a module as text: `(module ...)`;
- a module as base64 of its bytes;
- `;; run: FILE.wasm` or `;; run: FILE.wasm as NAME` alone: a module, binary or text, in the working directory.

A module without a name runs: its `_start`, else `main` if that takes nothing, else the last exported function that
takes nothing; what it returns is the cell's value. A module with a name, `(module $name ...)`, is kept with its
state: later cells import its exports from "name", and of itself it runs `_start` or `main` only.

It runs in a thread, so that this one streams what is printed and hears interrupts.
"""

import base64
import binascii
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple

import wasmtime  # type: ignore[import-not-found,unused-ignore]  # in the image alone

# For our own modules. Last, and the cells are no Python: nothing of theirs is imported.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from aeolus_sandbox.guest.small_kernel import Cell, LanguageInfo, SmallKernel
from aeolus_sandbox.guest.text_pipe import TextPipe

_RUN_FILE: Final = re.compile(r"\s*;;\s*run:\s*(\S+)(?:\s+as\s+(\S+))?\s*")
_BASE64: Final = re.compile(
    r"\s*AGFzb[A-Za-z0-9+/\s]*=*\s*"
)  # the bytes 00 61 73 6d, which every module begins with
_NAMED: Final = re.compile(r"(?:\s|;;[^\n]*\n|\(;.*?;\))*\(\s*module\s+\$([^\s();]+)", re.DOTALL)
_PLACE: Final = re.compile(r"--> <anon>:(\d+):(\d+)")
_MEMORY_FILES: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_MOST_MEMORY_BYTES: Final = 4 * 1024**3
_MEMORY_SHARE: Final = 0.75
_EXACT_JSON: Final = 2**53


class Source(NamedTuple):
    """What a cell stands for."""

    text_or_bytes: str | bytes
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a cell ended."""

    value: Any = None
    error: tuple[str, str] | None = None
    """Name and message."""
    traceback: list[str] = field(default_factory=list)

    def end(self, cell: Cell) -> None:
        """Tell the cell."""
        if self.error:
            cell.fail(*self.error, self.traceback)
            return
        if self.value is not None:
            cell.show_result(_bundle(self.value))
        cell.succeed()


class Modules:
    """The engine, and the instances that are kept."""

    def __init__(self, stdout: str, stderr: str) -> None:
        config = wasmtime.Config()
        config.epoch_interruption = True
        self.engine = wasmtime.Engine(config)
        self._stdout, self._stderr = stdout, stderr
        self._memory_bytes = _memory_limit()
        self._kept: set[str] = set()
        self._kept_store = self._new_store()
        self._kept_linker = self._new_linker()
        self._kept_linker.allow_shadowing = True
        self._linker = self._new_linker()

    def run(self, source: Source, interrupted: Callable[[], bool]) -> Any:
        """Run a module, and return the value of the function that it ran, if it ran one."""
        module = wasmtime.Module(self.engine, _binary(source.text_or_bytes))
        shares = source.name or any(each.module in self._kept for each in module.imports)
        # What nobody can import from has a store of its own, which goes with it.
        store, linker = (self._kept_store, self._kept_linker) if shares else (self._new_store(), self._linker)
        store.set_epoch_deadline(1)
        if interrupted():  # before the deadline counted
            raise KeyboardInterrupt
        instance = linker.instantiate(store, module)
        exports = instance.exports(store)
        if isinstance(initialize := exports.get("_initialize"), wasmtime.Func):
            initialize(store)
        if source.name:
            linker.define_instance(store, source.name, instance)
            self._kept.add(source.name)
        entry = _entry(module, is_program=source.name is None)
        return exports[entry](store) if entry is not None else None

    def _new_linker(self) -> wasmtime.Linker:
        linker = wasmtime.Linker(self.engine)
        linker.define_wasi()
        return linker

    def _new_store(self) -> wasmtime.Store:
        store = wasmtime.Store(self.engine)
        store.set_limits(memory_size=self._memory_bytes)
        # Boundary: WASI gives what is named here alone: the working directory, and no network.
        wasi = wasmtime.WasiConfig()
        wasi.argv = ("module",)
        wasi.stdin_file = os.devnull
        wasi.stdout_file, wasi.stderr_file = self._stdout, self._stderr
        for seen_as in (".", "/workspace"):
            wasi.preopen_dir(".", seen_as)
        store.set_wasi(wasi)
        return store


class WasmInterpreter:
    """The modules, and the cell that runs."""

    def __init__(self, kernel: SmallKernel) -> None:
        self._kernel = kernel
        self._cell: Cell | None = None
        self._interrupted = False
        self._pipes = [TextPipe(kernel, partial(self._write, name)) for name in ("stdout", "stderr")]
        self._modules = Modules(*(pipe.path for pipe in self._pipes))

    @property
    def info(self) -> LanguageInfo:
        """What the kernel says of itself."""
        return LanguageInfo("wasm", f"wasmtime {version('wasmtime')}", "text/x-wat", ".wat")

    def start(self, cell: Cell, code: str) -> None:
        """Begin with a cell."""
        self._cell, self._interrupted = cell, False
        self._kernel.run_in_thread(partial(self._run, code), self._end)

    def interrupt(self) -> None:
        """Interrupt the module that runs; what it waits for outside of its code, as in a sleep, ends first."""
        if self._cell:
            self._interrupted = True
            self._modules.engine.increment_epoch()

    def take_answer(self, text: str) -> None:
        """Do nothing: a module's input is empty, and it asks nobody."""

    def _write(self, stream: str, text: str) -> None:
        if self._cell:
            self._cell.write(stream, text)

    def _run(self, code: str) -> Outcome:
        try:
            return Outcome(self._modules.run(read_source(code), lambda: self._interrupted))
        except wasmtime.ExitTrap as exited:
            return Outcome(error=("ExitStatus", str(exited.code))) if exited.code else Outcome()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the cell's, and the kernel goes on
            return self._failed(error)

    def _failed(self, error: BaseException) -> Outcome:
        words = str(error).strip()
        reason = words.rpartition("Caused by:\n")[2].strip()
        is_interrupt = isinstance(error, wasmtime.Trap) and error.trap_code == wasmtime.TrapCode.INTERRUPT
        if self._interrupted and (is_interrupt or isinstance(error, KeyboardInterrupt)):
            return Outcome(error=("KeyboardInterrupt", "the code was interrupted"))
        if isinstance(error, wasmtime.Trap):
            value = reason.removeprefix("wasm trap: ")
            return Outcome(error=("Trap", value), traceback=[f"Trap: {value}", *words.splitlines()])
        if place := _PLACE.search(words):
            value = f"{words.splitlines()[0]} (line {place[1]}, column {place[2]})"
            return Outcome(
                error=("SyntaxError", value), traceback=[f"SyntaxError: {value}", *words.splitlines()]
            )
        if isinstance(error, wasmtime.WasmtimeError):
            name = "LinkError" if "import" in reason else "CompileError"
            return Outcome(error=(name, reason.splitlines()[-1].strip().removeprefix("1: ")))
        return Outcome(error=(type(error).__name__, words))

    def _end(self, outcome: Outcome) -> None:
        for pipe in self._pipes:
            pipe.drain()
        cell, self._cell = self._cell, None
        if cell:
            outcome.end(cell)


def read_source(code: str) -> Source:
    """Return what a cell stands for.

    Raises:
        OSError: It names a file that cannot be read.
        ValueError: It is broken base64.
    """
    if found := _RUN_FILE.fullmatch(code):
        return Source(Path(found[1]).read_bytes(), found[2])
    if _BASE64.fullmatch(code):
        try:
            return Source(base64.b64decode(code))
        except binascii.Error as error:
            raise ValueError(f"not base64: {error}") from error  # noqa: EM102
    named = _NAMED.match(code)
    return Source(code, named[1] if named else None)


def _binary(source: str | bytes) -> bytes:
    if isinstance(source, bytes) and source.startswith(b"\0asm"):
        return source
    text = source if isinstance(source, str) else source.decode("utf-8", "replace")
    return bytes(wasmtime.wat2wasm(text if text.strip() else "(module)"))


def _entry(module: wasmtime.Module, *, is_program: bool) -> str | None:
    """Name the export to call."""
    callable_names = [
        each.name
        for each in module.exports
        if isinstance(each.type, wasmtime.FuncType) and not each.type.params
    ]
    named = next((name for name in ("_start", "main") if name in callable_names), None)
    others = [name for name in callable_names if name != "_initialize"] if is_program else []
    return named or (others[-1] if others else None)


def _bundle(value: Any) -> dict[str, Any]:
    """Return a value as text, and as JSON where that says the same."""
    numbers = value if isinstance(value, list) else [value]
    exact = all(
        isinstance(each, int | float) and isfinite(each) and abs(each) <= _EXACT_JSON for each in numbers
    )
    return {"text/plain": str(value)} | ({"application/json": value} if exact else {})


def _memory_limit() -> int:
    """Return how large a memory may grow: a part of the container's, so that growing fails before it dies."""
    for path in _MEMORY_FILES:
        if path.exists() and (text := path.read_text("ascii").strip()).isdigit():
            return min(int(int(text) * _MEMORY_SHARE), _MOST_MEMORY_BYTES)
    return _MOST_MEMORY_BYTES


def main() -> None:
    """Run the kernel until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # until the kernel listens
    kernel = SmallKernel(Path(sys.argv[1]))
    kernel.run(WasmInterpreter(kernel))


if __name__ == "__main__":
    main()
