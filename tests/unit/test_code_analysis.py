"""The policy decides what happens to code with findings; shell and WebAssembly are analysed too."""

import threading
from typing import TYPE_CHECKING, cast

import pytest

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, CodeResult
from aeolus_sandbox.errors import CodeRefused, ConfigurationError
from aeolus_sandbox.guest import frames
from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding, CodePolicy, analyse, analyser, enforce
from aeolus_sandbox.tools.code_interpreter.cell import FINDING_TYPE, Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from tests.unit.scripted_guest import ScriptedProcess, read_all, text

if TYPE_CHECKING:
    from aeolus_sandbox.streaming.tool import ToolContext

INFO = "import requests\nrequests.get('x')"
DANGER = "import os\neval(x)\nos.kill(-1, 9)"


async def test_warn_gives_the_findings() -> None:
    assert [found.rule for found in await enforce(DANGER, "python", CodePolicy.WARN)] == [
        "computed_code",
        "kills_sandbox",
    ]


async def test_ignore_does_not_even_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyser, "analyse", None)
    assert await enforce(DANGER, "python", CodePolicy.IGNORE) == ()


async def test_deny_refuses_and_names_the_worst() -> None:
    with pytest.raises(
        CodeRefused, match=r"'kills_sandbox' at line 3, column 1: .*\(and 1 more\)"
    ) as refused:
        await enforce(DANGER, "python", CodePolicy.DENY)
    assert isinstance(refused.value, ConfigurationError)
    assert refused.value.code == "code_refused"


async def test_deny_lets_pass_what_is_only_worth_knowing() -> None:
    assert [found.severity for found in await enforce(INFO, "python", CodePolicy.DENY)] == ["info"]


@pytest.mark.parametrize("code", ["x = " + "-" * 5000 + "1", "x" * 5_000_000])
async def test_deny_refuses_what_cannot_be_analysed(code: str) -> None:
    with pytest.raises(CodeRefused):
        await enforce(code, "python", CodePolicy.DENY)


async def test_an_analysis_that_does_not_come_back_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def hangs(_code: str, _language: str) -> list[CodeFinding]:
        assert released.wait(60)
        return []

    monkeypatch.setattr(analyser, "analyse", hangs)
    monkeypatch.setattr(analyser, "TIME_LIMIT_S", 0.01)
    try:
        [found] = await enforce("x\n" * 100, "python", CodePolicy.WARN)
    finally:
        released.set()
    assert (found.rule, found.severity) == ("not_analysed", "warning")


def test_shell_code_is_checked_as_a_command_is() -> None:
    [found] = analyse("ls\necho 1 && rm -rf /", "bash")
    assert (found.rule, found.severity, found.line, found.column) == (
        "recursive_delete_of_root",
        "danger",
        2,
        11,
    )
    assert analyse("rm -rf ./build", "bash") == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('(module\n (import "wasi_snapshot_preview1" "sock_send" (func)))', [("network", 2)]),
        ('(module (import "wasi_snapshot_preview1" "proc_raise" (func)))', [("ends_kernel", 1)]),
        ('(module (memory (export "memory") 1 65536))', []),
        ("(module (memory 65536))", [("huge_allocation", 1)]),
        ("(module (memory $m 0x8000 0x10000))", [("huge_allocation", 1)]),
        ("(module (func (drop (memory.grow (i32.const 60000)))))", [("huge_allocation", 1)]),
        ("(module (func i32.const 60000 memory.grow drop))", [("huge_allocation", 1)]),
        ('(module (data (i32.const 0) "/etc/shado\\77"))', [("system_secret", 1)]),
        ('(module (data (i32.const 0) "http://169.254.169.254/"))', [("metadata_address", 1)]),
        (";; (memory 65536)\n(; (memory 65536)\n ;)\n(module (memory 70000))", [("huge_allocation", 4)]),
        ('(module (import "env" "memory" (memory 1)) (func $import (result i32) i32.const 70000))', []),
        ('(module (import "wasi_snapshot_preview1" "fd_write" (func)) (memory 2))', []),
        ('(module (data (i32.const 0) "(memory 65536)"))', []),
        ("\0asm\x01\0\0\0 memory 65536", []),
    ],
)
def test_webassembly_text_is_analysed(code: str, found: list[tuple[str, int]]) -> None:
    assert [(finding.rule, finding.line) for finding in analyse(code, "wasm")] == found


def test_a_finding_says_itself_in_words() -> None:
    [found] = analyse("import os; os._exit(1)", "python")
    assert found.as_text() == (
        "warning: It ends the kernel's process, and all variables are lost. [ends_kernel, line 1, column 12]"
    )


def test_what_the_documentation_says_slips_through_does() -> None:
    for code in ("import os\nvars(os)[''.join(['s', 'ystem'])]('ls')", "d = {'f': eval}\nd['f'](input())"):
        assert analyse(code, "python") == []


async def test_a_tool_that_denies_refuses_before_anything_starts() -> None:
    nothing = cast("ToolContext", object())
    tool = CodeInterpreterTool(code_policy=CodePolicy.DENY)
    with pytest.raises(CodeRefused):
        await tool.start(CodeInterpreterInput(code=DANGER), nothing)


async def test_findings_come_first_and_are_in_the_result(process: ScriptedProcess, kernel: Kernel) -> None:
    findings = tuple(analyse(DANGER, "python"))
    op = await kernel.execute(DANGER)
    assert op is not None
    cell = Cell(kernel, op, keeps_kernel=True, findings=findings)
    process.say(text(1, "hello"), frames.Done(op=1, status="ok"))
    chunks = await read_all(cell)
    assert [chunk.stream for chunk in chunks] == ["status", "status", "stdout"]
    assert [chunk.content for chunk in chunks[:2]] == [finding.as_text() for finding in findings]
    assert CodeFinding.model_validate_json(chunks[0].alternatives[FINDING_TYPE]) == findings[0]
    result = await cell.result()
    assert result.findings == findings
    assert CodeResult.model_validate_json(result.model_dump_json()) == result
