"""Where facts become findings, and where the work is counted."""

import time
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis.catalogue import Rule
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact, Place
from aeolus_sandbox.tools.code_interpreter.analysis.findings import CodeFinding, Severity
from aeolus_sandbox.tools.code_interpreter.analysis.rules import Command, RuleBook
from aeolus_sandbox.tools.terminal.command_check import check_command

MAX_FINDINGS: Final = 50
MAX_COMMANDS: Final = 50
CPU_SECONDS: Final = 1.0
"""CPU time of this thread, and not wall time, so that a busy machine changes no answer."""
_SEVERITIES: Final[tuple[Severity, ...]] = ("danger", "warning", "info")
_WORKSPACE: Final = "/workspace"


class TooMuchWork(Exception):
    """One analysis has used up what it may cost."""


class Report:
    """The findings of one analysis."""

    def __init__(self, code: str) -> None:
        self._lines: Final = code.split("\n")
        self._found: Final[dict[tuple[str, int, int], CodeFinding]] = {}
        self._deadline: Final = time.thread_time() + CPU_SECONDS
        self._commands = 0

    def findings(self) -> list[CodeFinding]:
        """Return what was found, in the order of the code."""
        return sorted(self._found.values(), key=lambda finding: (finding.line, finding.column))

    def check_time(self) -> None:
        """Raise `TooMuchWork` if time is up."""
        if time.thread_time() > self._deadline:
            raise TooMuchWork

    def fact(self, fact: Fact, rules: RuleBook) -> None:
        """Hold a fact of a language against its rules."""
        for rule in rules.broken_by(fact):
            self.add(rule, self.place(fact.at))
        command = rules.command_of(fact)
        if command is not None:
            self.command(command, fact.at[0], at=self.place(fact.at))

    def command(self, command: Command, line: int, *, at: Place | None = None) -> None:
        """Check a command for a shell that begins at a line; `at`: what is found is said to be there."""
        self.check_time()
        self._commands += 1
        if self._commands > MAX_COMMANDS:
            raise TooMuchWork
        for found in check_command(command, cwd=_WORKSPACE):
            severity: Severity = "danger" if found.severity == "danger" else "warning"
            rule = Rule(found.rule, severity, found.message)
            self.add(rule, at or (found.line + line - 1, found.column))

    def add(self, rule: Rule, place: Place = (1, 1)) -> None:
        """Add a finding; the first of a rule at a place counts. When there are too many, the worst are kept."""
        key = (rule.name, *place)
        if key not in self._found:
            self._found[key] = finding(rule, place)
        if len(self._found) > MAX_FINDINGS:
            least = max(self._found, key=lambda key: _SEVERITIES.index(self._found[key].severity))
            del self._found[least]

    def place(self, at: Place) -> Place:
        """Return line and column, both from 1, in characters, of a place whose column is in bytes."""
        line = min(max(at[0], 1), len(self._lines))
        before = self._lines[line - 1].encode()[: max(at[1], 0)].decode("utf-8", "ignore")
        return line, len(before) + 1


def finding(rule: Rule, place: Place = (1, 1)) -> CodeFinding:
    """Return the finding that a rule is broken at a place."""
    line, column = place
    return CodeFinding(rule=rule.name, severity=rule.severity, line=line, column=column, message=rule.message)
