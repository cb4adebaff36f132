"""What a shell command consists of, as plain frozen data: what `shell_syntax` makes of its text.

Text that was quoted in the shell is *shielded*: the characters that would be special to later expansions (globs,
braces, tilde) are mapped to private code points, so that one plain string says both what a word is and what of it
was literal. `plain` maps them back.
"""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

_PRIVATE: Final = 0xF0000
_SHIELD: Final = {ord(c): chr(_PRIVATE + ord(c)) for c in "*?[]{},~()"}
_PLAIN: Final = {ord(shielded): chr(original) for original, shielded in _SHIELD.items()}
# NUL ends the grammar's input and a lone surrogate has no UTF-8 form: both become characters that the shell would
# not have seen either. Our own private code points must not come in from outside. Lengths stay the same.
_UNREPRESENTABLE: Final = re.compile("[\ud800-\udfff\U000f0000-\U000fffff]")


def shield(text: str) -> str:
    """Mark the special characters of `text` as literal."""
    return text.translate(_SHIELD)


def plain(text: str) -> str:
    """Undo `shield`."""
    return text.translate(_PLAIN)


def cleaned(text: str) -> str:
    """The text as it can be parsed: same length, NUL as a zero-width space, the unrepresentable as U+FFFD."""
    return _UNREPRESENTABLE.sub("\ufffd", text).replace("\0", "\u200b")


_ANSI_ESCAPE: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def decode_escapes(text: str) -> str:
    """The text of a `$'...'` string, or of a `printf` format, with its backslash escapes decoded."""

    def decoded(match: re.Match[str]) -> str:
        octal, hexadecimal, short, long, control, letter = match.groups()
        if letter:
            return _ANSI_LETTERS.get(letter, letter)
        if control:
            return chr(ord(control) & 0x1F)
        code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
        return cleaned(chr(code)) if 0 < code < 0x110000 else ""

    return _ANSI_ESCAPE.sub(decoded, text)


def unescaped(raw: str) -> str:
    """An unquoted word without its backslashes."""
    return re.sub(r"\\(.)", lambda m: "" if m[1] == "\n" else shield(m[1]), raw, flags=re.DOTALL)


def unescaped_in_quotes(raw: str) -> str:
    """Text between double quotes without its backslashes."""
    return shield(re.sub(r"\\([$`\"\\\n])", lambda m: "" if m[1] == "\n" else m[1], raw))


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text; what was quoted in it is shielded."""

    value: str


@dataclass(frozen=True, slots=True)
class Variable:
    """`$name` or `${name...}`; `operator` and `fallback` as in `${name:-fallback}`."""

    name: str
    quoted: bool
    operator: str = ""
    fallback: "Word | None" = None


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(body)`, `<(body)` or `>(body)`; also the bodies found in an expression whose value nobody can tell."""

    body: "Block"
    quoted: bool
    kind: Literal["command", "process", "expression"]


Part: TypeAlias = Text | Variable | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    """One word before expansion."""

    parts: tuple[Part, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """`name=value`; an array has no value that we follow."""

    name: str
    value: Word
    append: bool


@dataclass(frozen=True, slots=True)
class Redirect:
    """`>`, `<`, ... with a target; for `<<` and `<<<` the target is the text itself."""

    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command."""

    words: tuple[Word, ...]
    at: int
    assignments: tuple[Assignment, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`a | b | c`."""

    stages: tuple["Statement", ...]
    at: int


@dataclass(frozen=True, slots=True)
class Block:
    """Statements one after another: a list, a group, a branch, a loop without values."""

    statements: tuple["Statement", ...]
    at: int
    subshell: bool = False


@dataclass(frozen=True, slots=True)
class Background:
    """`body &`."""

    body: "Statement"
    at: int


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound statement with redirects."""

    body: "Statement"
    redirects: tuple[Redirect, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Function:
    """A function definition."""

    name: str
    body: "Statement"
    at: int


@dataclass(frozen=True, slots=True)
class Loop:
    """`for variable in values; do body; done`."""

    variable: str
    values: tuple[Word, ...]
    body: Block
    at: int


@dataclass(frozen=True, slots=True)
class TooDeep:
    """Stands where the nesting went past `MAX_NESTING`."""

    at: int


Statement: TypeAlias = Command | Pipeline | Block | Background | Redirected | Function | Loop | TooDeep


@dataclass(frozen=True, slots=True)
class Unread:
    """Text that does not fit the grammar."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Script:
    """A parsed command; `at` everywhere is a byte offset in `source`."""

    body: Block
    source: bytes
    unread: tuple[Unread, ...] = ()

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1, in characters."""
        before = self.source[:at].decode("utf-8", "ignore")
        return before.count("\n") + 1, len(before) - before.rfind("\n")


def with_brace(statement: Statement) -> Statement:
    """The statement with the `{` that the grammar took for a group, and the shell for a word: `{rm,-rf,/}`."""
    if isinstance(statement, Command) and statement.words:
        first, *rest = statement.words
        joined = Word((Text("{"), *first.parts), first.at - 1)
        return replace(statement, words=(joined, *rest), at=first.at - 1)
    if isinstance(statement, Pipeline) and statement.stages:
        return replace(statement, stages=(with_brace(statement.stages[0]), *statement.stages[1:]))
    if isinstance(statement, Block) and statement.statements:
        return replace(statement, statements=(with_brace(statement.statements[0]), *statement.statements[1:]))
    return statement
