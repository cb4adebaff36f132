"""Checks a shell command for patterns that are dangerous, before it runs.

Boundary: this is advice and not a barrier. The container is the boundary: whatever slips through here (a program
that deletes files, say, which no parser sees) stays within the container's limits. The check exists so that a slip
of a model or a person is named before it costs a session.

A real parser reads the command, never a search in its text: quoting, variables, wrappers and nested scripts are
looked through, and text that is only data (arguments, comments, here-documents for other programs) is left alone.
Findings are `danger` (what the command would do is known) or `suspicious` (it hides what it does, or whether it does
harm depends on what cannot be told).

What the shell would refuse itself, an unclosed quote for example, is no finding: the shell says it better. Where the
parser fails, the parts it recovered are checked as usual, and the rest word by word; `not_parsed` is found only if
that meets a rule, or if the rest is very long.

The check does no I/O and its work is bounded: by length, by depth, by steps and by CPU time for the parser.
"""

import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict

from aeolus_sandbox.errors import CommandRefused
from aeolus_sandbox.tools.terminal.command_walk import Walker
from aeolus_sandbox.tools.terminal.danger_paths import Verdict
from aeolus_sandbox.tools.terminal.shell_expansion import Scope, TooMuchWork, Work
from aeolus_sandbox.tools.terminal.shell_syntax import Meter, ParsingTooCostly, parse
from aeolus_sandbox.tools.terminal.shell_tree import Block, Command, Script, Text, Word, cleaned, shield

MAX_COMMAND_CHARACTERS: Final = 256 * 1024
MAX_FINDINGS: Final = 20
MAX_WORK: Final = 2_000_000
EXCERPT_CHARACTERS: Final = 60
_TOO_LONG: Final = Verdict("too_long_to_check", "suspicious", "it is too long to be checked")
_TOO_COMPLEX: Final = Verdict("too_complex_to_check", "suspicious", "checking it takes too much work")
_TOO_DEEP: Final = Verdict("too_deeply_nested", "suspicious", "it is nested too deeply to be checked")


class Finding(BaseModel):
    """A rule that a command breaks, and where."""

    model_config = ConfigDict(frozen=True)

    rule: str
    """Stable name of the rule."""
    severity: Literal["danger", "suspicious"]
    message: str
    """One sentence that says what is wrong and why."""
    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    excerpt: str
    """The beginning of the place, control characters made visible."""


class CommandPolicy(StrEnum):
    """What happens to a command with findings."""

    DENY = "deny"
    """It is refused, whatever the severity."""
    WARN = "warn"
    """It runs, and the findings are reported."""
    ALLOW = "allow"
    """It is not checked."""


def check_command(command: str | Sequence[str], *, cwd: str | None = None) -> list[Finding]:
    """Find what is dangerous in a command.

    Args:
        command: A shell script, or the exact words of one command.
        cwd: The directory that it starts in, where that is known.

    Returns:
        The findings in the order of their places; none for a harmless command.
    """
    words = (
        None
        if isinstance(command, str | bytes | bytearray | memoryview)
        else [_text(word) for word in command]
    )
    text = cleaned(_text(command) if words is None else shlex.join(words))
    found: dict[tuple[str, int], Verdict] = {}

    def report(verdict: Verdict, at: int) -> None:
        if len(found) < MAX_FINDINGS:
            found.setdefault((verdict.rule, at), verdict)

    script = Script(Block((), 0), text[:MAX_COMMAND_CHARACTERS].encode())
    if len(text) > MAX_COMMAND_CHARACTERS:
        report(_TOO_LONG, 0)
    else:
        _check(text, words, cwd, report)
    ordered = sorted(found.items(), key=lambda item: item[0][1])
    return [_finding(verdict, script, at) for (_, at), verdict in ordered]


def enforce(command: str | Sequence[str], policy: CommandPolicy, *, cwd: str | None = None) -> list[Finding]:
    """Check a command and act on the policy.

    Raises:
        CommandRefused: The policy is `deny` and there is a finding.
    """
    if policy is CommandPolicy.ALLOW:
        return []
    findings = check_command(command, cwd=cwd)
    if findings and policy is CommandPolicy.DENY:
        first = next((finding for finding in findings if finding.severity == "danger"), findings[0])
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        message = (
            f"command refused by rule {first.rule!r} at line {first.line}, column {first.column}: {first.message} "
            f"in {first.excerpt!r}{more}; change the command, or use the policy 'warn' or 'allow'"
        )
        raise CommandRefused(message)
    return findings


def _check(
    text: str, words: list[str] | None, cwd: str | None, report: Callable[[Verdict, int], None]
) -> None:
    meter = Meter()
    work = Work(MAX_WORK)
    walker = Walker(report, work, meter)
    scope = Scope(work, cwd=None if cwd is None else cleaned(cwd))
    try:
        if words is None:
            walker.whole(parse(text, meter), scope)
        else:
            exact = tuple(Word((Text(shield(cleaned(word))),), 0) for word in words)
            walker.visit(Command(exact, 0), scope)
        walker.find_fork_bombs()
    except (TooMuchWork, ParsingTooCostly):
        report(_TOO_COMPLEX, 0)
    except RecursionError:  # the caller's own stack was nearly full
        report(_TOO_DEEP, 0)


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def _finding(verdict: Verdict, script: Script, at: int) -> Finding:
    line, column = script.place(at)
    rest = script.source[at : at + 4 * EXCERPT_CHARACTERS].decode("utf-8", "ignore").partition("\n")[0]
    excerpt = rest if len(rest) <= EXCERPT_CHARACTERS else rest[: EXCERPT_CHARACTERS - 3] + "..."
    return Finding(
        rule=verdict.rule,
        severity=verdict.severity,
        message=f"{verdict.message[0].upper()}{verdict.message[1:]}.",
        line=line,
        column=column,
        excerpt=_visible(excerpt),
    )


def _visible(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
