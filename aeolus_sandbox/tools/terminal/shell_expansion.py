"""What a word of a shell command becomes, as far as that can be told without running anything.

What cannot be told is in the result as one private character that says why (`UNKNOWN`, `UNSET`, ...), so that
callers go on working with plain strings. None of these characters can come in from outside (`shell_tree.cleaned`).
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from aeolus_sandbox.tools.terminal.shell_tree import (
    Function,
    Substitution,
    Text,
    Variable,
    Word,
    plain,
    shield,
)

UNKNOWN: Final = "\U000f1000"
"""Some text that nobody can tell."""
UNSET: Final = "\U000f1001"
"""A variable that the command does not set: most probably nothing."""
DOWNLOADED: Final = "\U000f1002"
"""The output of a download."""
DECODED: Final = "\U000f1003"
"""The output of a decoder."""
HOME: Final = "\U000f1004"
"""The home directory."""
ITSELF: Final = "\U000f1005"
"""The running script, `$0`."""
PROCESS: Final = "\U000f1007"
"""Before the text that a process substitution, `<(...)`, is known to give."""
UNTOLD: Final = re.compile(f"[{UNKNOWN}{DOWNLOADED}{DECODED}{PROCESS}]")
_BREAK: Final = "\U000f1006"
"""Between the members of `$@`."""
_RUNNABLE: Final = {
    UNKNOWN: "$(:)",
    DOWNLOADED: "$(:)",
    DECODED: "$(:)",
    UNSET: "",
    HOME: "$HOME",
    ITSELF: "$0",
    _BREAK: " ",
    PROCESS: "",
}
_TOLD_BY_NOBODY: Final = frozenset(
    "# ? $ ! - _ OLDPWD TMPDIR USER LOGNAME HOSTNAME UID EUID PATH RANDOM TERM LANG PPID".split()  # noqa: SIM905
)
_ACTIVE_GLOBS: Final = {ord(shield(c)): c for c in "*?[]"}
_TILDE: Final = re.compile(r"~[a-z_][\w-]*(?=/|$)|~(?=/|$)")
_MAX_FIELDS: Final = 1024


class TooMuchWork(Exception):
    """One check has done as much as it may."""


@dataclass(slots=True)
class Work:
    """What one check may still do, in characters or statements looked at."""

    left: int

    def spend(self, amount: int) -> None:
        """Take `amount` off, or raise `TooMuchWork`."""
        self.left -= amount
        if self.left < 0:
            raise TooMuchWork


@dataclass(slots=True)
class Scope:
    """What is known of the shell that runs a statement."""

    work: Work
    cwd: str | None = None
    variables: dict[str, str] = field(
        default_factory=lambda: {"IFS": " \t\n", "SHELL": "/bin/sh", "BASH": "/bin/bash"}
    )
    positional: tuple[str, ...] = ()
    functions: dict[str, Function] = field(default_factory=dict)
    inside: str | None = None
    """The function whose body runs."""
    calls: tuple[str, ...] = ()
    forked: bool = False
    """Whether the statement runs beside its parent since the function began: in a pipe or in the background."""

    def subshell(self, *, forked: bool | None = None) -> "Scope":
        """A copy that can be changed without changing this one."""
        self.work.spend(len(self.variables) + len(self.functions))
        copied = replace(self, variables=dict(self.variables), functions=dict(self.functions))
        copied.forked = self.forked if forked is None else forked
        return copied

    def value(self, name: str) -> str:
        """The text of a variable."""
        if name == "0":
            return self.variables.get(name, ITSELF)
        if name.isdecimal() and len(name) < 3:
            return next(iter(self.positional[int(name) - 1 :][:1]), UNSET) if int(name) else UNSET
        if name in ("@", "*"):
            return _BREAK.join(self.positional) or UNSET
        if name in self.variables:
            return self.variables[name]
        if name == "HOME":
            return HOME
        if name == "PWD":
            return self.cwd or UNKNOWN
        return UNKNOWN if name in _TOLD_BY_NOBODY else UNSET


def expand(word: Word, scope: Scope, substitute: Callable[[Substitution], str]) -> list[str]:
    """The fields that a word becomes; `substitute` says what a substitution prints."""
    fields: list[str] = []
    current: str | None = None
    for piece, ends in _pieces(word, scope, substitute):
        if ends and current is not None:
            fields.append(current)
            current = None
        if piece is not None:
            current = piece if current is None else current + piece
            scope.work.spend(1 + len(piece))
    if current is not None:
        fields.append(current)
    if len(fields) > _MAX_FIELDS:
        raise TooMuchWork
    expanded = [one for text in fields for one in _braces(text, scope.work)]
    return [_tilde(text) for text in expanded]


def expand_one(word: Word, scope: Scope, substitute: Callable[[Substitution], str]) -> str:
    """What a word becomes where the shell does not split it, as in an assignment or a here-document."""
    value = "".join(
        text
        for part in word.parts
        for text in (part.value if isinstance(part, Text) else _value(part, scope, substitute),)
    )
    scope.work.spend(1 + len(value))
    return _tilde(value)


def runnable(text: str) -> str:
    """Expanded text as a script again; what nobody can tell stays a substitution in it."""
    return plain("".join(_RUNNABLE.get(character, character) for character in text))


def _pieces(
    word: Word, scope: Scope, substitute: Callable[[Substitution], str]
) -> Iterator[tuple[str | None, bool]]:
    """Pieces of text, each with whether a field ends before it."""
    for part in word.parts:
        if isinstance(part, Text):
            yield part.value, False
            continue
        value = _value(part, scope, substitute)
        if part.quoted or (isinstance(part, Substitution) and part.kind == "process"):
            split = value.split(_BREAK)
            yield from ((shield(piece), at > 0) for at, piece in enumerate(split))
        else:
            split = re.split(rf"[ \t\n{_BREAK}]+", value)
            yield from ((piece.translate(_ACTIVE_GLOBS) or None, at > 0) for at, piece in enumerate(split))


def _value(part: Variable | Substitution, scope: Scope, substitute: Callable[[Substitution], str]) -> str:
    if isinstance(part, Substitution):
        return substitute(part)
    value = scope.value(part.name)
    if part.fallback is None:
        return value
    fallback = expand_one(part.fallback, scope, substitute)
    known = value not in ("", UNSET)
    match part.operator:
        case ":-" | "-" | ":=" | "=":
            return value if known else fallback
        case ":?" | "?":  # the shell stops where it is not set
            return value if known else UNKNOWN
        case _:
            return fallback


def _tilde(text: str) -> str:
    return _TILDE.sub(HOME, text, count=1) if text.startswith("~") and _TILDE.match(text) else text


def _braces(text: str, work: Work) -> Iterator[str]:
    """`{a,b}` in all its combinations."""
    group = _first_group(text) if "{" in text and "," in text else None
    if group is None:
        yield text
        return
    for start, end in itertools.pairwise(group):
        work.spend(len(text))
        yield from _braces(text[: group[0]] + text[start + 1 : end] + text[group[-1] + 1 :], work)


def _first_group(text: str) -> list[int] | None:
    """Offsets of the `{`, the commas and the `}` of the first outermost group that has a comma."""
    stack: list[list[int]] = []
    best: list[int] | None = None
    for match in re.finditer("[{},]", text):
        at, mark = match.start(), match[0]
        if mark == "{":
            stack.append([at])
        elif stack and mark == ",":
            stack[-1].append(at)
        elif stack and mark == "}":
            group = [*stack.pop(), at]
            if len(group) > 2 and (best is None or group[0] < best[0]):
                best = group
    return best
