"""One entry for all languages: code in, findings out, never an exception, whatever the code is.

Boundary: this is advice and not a barrier, like the terminal's command check. The container is the boundary. The work
is bounded all the same, because a text must not cost the host much more than it costs to send: by length, by depth
and by CPU time.
"""

import asyncio
from typing import Final

from aeolus_sandbox.errors import CodeRefused
from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis.findings import CodeFinding, CodePolicy
from aeolus_sandbox.tools.code_interpreter.analysis.javascript import analyse_javascript
from aeolus_sandbox.tools.code_interpreter.analysis.python import analyse_python
from aeolus_sandbox.tools.code_interpreter.analysis.r import analyse_r
from aeolus_sandbox.tools.code_interpreter.analysis.report import Report, TooMuchWork, finding
from aeolus_sandbox.tools.code_interpreter.analysis.wasm import analyse_wasm
from aeolus_sandbox.tools.terminal.shell_syntax import ParsingTooCostly
from aeolus_sandbox.tools.terminal.shell_tree import cleaned

MAX_CODE_CHARACTERS: Final = 256 * 1024
TIME_LIMIT_S: Final = 10.0
"""How long a caller waits for an analysis; its own limit of CPU time is much shorter."""
_AT_ONCE_CHARACTERS: Final = 100
"""How much code is analysed in the event loop: going to a thread and back takes longer than the analysis."""


def _analyse_bash(code: str, report: Report) -> None:
    report.command(code, 1)


_ANALYSES: Final = {
    "bash": _analyse_bash,
    "javascript": analyse_javascript,
    "python": analyse_python,
    "r": analyse_r,
    "typescript": analyse_javascript,
    "wasm": analyse_wasm,
}


def analyse(code: str, language: str) -> list[CodeFinding]:
    """Find what is dangerous in a piece of code.

    It is pure computation of up to about a second: in an event loop, use `enforce`.

    Args:
        code: Any text.
        language: The name of a language; of one that is not known nothing is found.

    Returns:
        The findings in the order of their places, at most `report.MAX_FINDINGS`.
    """
    text = cleaned(code).replace("\r\n", "\n").replace("\r", "\n")
    report = Report(text)
    reader = _ANALYSES.get(language)
    if reader is None:
        return []
    if len(text) > MAX_CODE_CHARACTERS:
        report.add(rule.TOO_LONG)
        return report.findings()
    try:
        reader(text, report)
    except (TooMuchWork, ParsingTooCostly):
        report.add(rule.TOO_COMPLEX)
    except (RecursionError, MemoryError):
        report.add(rule.TOO_DEEP)
    return report.findings()


async def enforce(code: str, language: str, policy: CodePolicy) -> tuple[CodeFinding, ...]:
    """Analyse code, in a thread where there is much of it, and act on the policy.

    Raises:
        CodeRefused: The policy is `deny`, and there is a finding that is more than an `info`.
    """
    if policy is CodePolicy.IGNORE:
        return ()
    findings = await _found(code, language)
    # Boundary: what could not be analysed counts as a warning, so that `deny` refuses it.
    refused = [found for found in findings if found.severity != "info"]
    if policy is CodePolicy.DENY and refused:
        first = next((found for found in refused if found.severity == "danger"), refused[0])
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        msg = (
            f"code refused by rule {first.rule!r} at line {first.line}, column {first.column}: {first.message}{more} "
            "Change the code, or use the policy 'warn' or 'ignore'"
        )
        raise CodeRefused(msg)
    return tuple(findings)


async def _found(code: str, language: str) -> list[CodeFinding]:
    if len(code) <= _AT_ONCE_CHARACTERS:
        return analyse(code, language)
    try:
        async with asyncio.timeout(TIME_LIMIT_S):
            return await asyncio.to_thread(analyse, code, language)
    except TimeoutError:  # no thread was free, or the machine is very busy
        return [finding(rule.NOT_ANALYSED)]
