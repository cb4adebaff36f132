"""A Python cell, statement by statement, with what IPython adds to Python turned into Python.

Each top-level statement is parsed apart: a mistake in one hides no other, no call of the parser is long, and time can
be looked at in between. No line moves; of a line that IPython rewrites, the columns do.
What IPython does to a cell: https://ipython.readthedocs.io/en/stable/interactive/reference.html
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Statement:
    """A part of a cell."""

    text: str
    line: int
    """The line of the cell that it begins at, from 1."""
    language: Literal["python", "shell"] = "python"


_SHELL_CELLS: Final = frozenset({"bash", "sh", "!", "system", "sx"})
_DATA_CELLS: Final = frozenset({"html", "svg", "latex", "markdown", "javascript", "js", "perl", "ruby"})
_TIMED: Final = frozenset({"time", "timeit", "prun", "memit"})
_CELL_MAGIC: Final = re.compile(r"\s*%%(!|\w+)[ \t]*([^\n]*)\n?")
_PROMPT: Final = re.compile(r"^[ \t]*(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)
_NOT_A_TOP: Final = re.compile(r"(?:else|elif|except|finally)\b|#|\n|$")
_NOTABLE: Final = re.compile(r"""["'#\n\\()\[\]{}]""")
_LONG_ENDS: Final = {
    '"""': re.compile(r'\\.|"""', re.DOTALL),
    "'''": re.compile(r"\\.|'''", re.DOTALL),
}
_SHORT_ENDS: Final = {'"': re.compile(r'\\.|["\n]', re.DOTALL), "'": re.compile(r"\\.|['\n]", re.DOTALL)}
_SHELL_LINE: Final = re.compile(r"([ \t]*)(?:[\w.,* \t\[\]]+=[ \t]*)?(!!?)(.*)", re.DOTALL)
_MAGIC_LINE: Final = re.compile(r"([ \t]*)(?:[\w.,* \t\[\]]+=[ \t]*)?%%?([A-Za-z_]\w*)(.*)", re.DOTALL)
_AUTOCALL: Final = re.compile(r"([ \t]*)([,;/])([A-Za-z_][\w.]*)[ \t]*(.*)", re.DOTALL)
_HELP: Final = re.compile(r"[ \t]*(?:\?{1,2}[ \t]*[%\w.*]+|[%\w.*]+\?{1,2})[ \t;]*")
_OPTIONS: Final = re.compile(r"\s*(?:-\w+\s*(?:\d+\s+)?)*")
_JOINED: Final = re.compile(r"\\\n[ \t]*")


def statements(cell: str) -> Iterator[Statement]:
    r"""Split a cell into its top-level statements.

    Args:
        cell: The code, with `\n` as the only end of a line.
    """
    magic = _CELL_MAGIC.match(cell)
    if magic is None:
        yield from _python(_without_prompts(cell), 1)
        return
    line = 1 + magic[0].count("\n")
    yield from _cell_magic(magic[1], magic[2].split(), cell[magic.end() :], line)


def _cell_magic(name: str, words: list[str], body: str, line: int) -> Iterator[Statement]:
    """What `%%name words` makes of the rest of the cell, which begins at a line."""
    if name == "script":
        program = words[0].rpartition("/")[2] if words else ""
        name = "sh" if program in ("bash", "dash", "sh") else "html"
    if name in _SHELL_CELLS:
        yield Statement(body, line, "shell")
    elif name in ("writefile", "file"):
        yield Statement(f"open({words[-1] if words else ''!r}, 'w')", line - 1)
    elif name not in _DATA_CELLS:
        if name in _TIMED and words:
            rest = " ".join(words)
            yield Statement(rest[_options_end(rest) :], line - 1)
        yield from _python(_without_prompts(body), line)


def _without_prompts(cell: str) -> str:
    if not cell.lstrip().startswith(">>>"):
        return cell
    return _PROMPT.sub(lambda found: " " * len(found[0]), cell)


def _python(text: str, line: int) -> Iterator[Statement]:
    base = _indent(text, _first_code(text))
    parts: list[str] = []
    begins = line
    decorated = False
    at = 0
    while at < len(text):
        end, shown = _logical_line(text, at)
        is_top = _indent(text, at) <= base and _NOT_A_TOP.match(text, at + _indent(text, at)) is None
        if is_top and not decorated and parts:
            yield _statement(parts, begins, base)
            parts, begins = [], line
        if is_top:
            decorated = text.startswith("@", at + _indent(text, at))
        parts.append(shown)
        line += text.count("\n", at, end)
        at = end
    if parts:
        yield _statement(parts, begins, base)


def _statement(parts: list[str], line: int, base: int) -> Statement:
    text = "".join(parts)
    # IPython takes the first line's indentation from all lines; a block around them does not move the columns.
    return Statement(f"if 1:\n{text}", line - 1) if base and text.strip() else Statement(text, line)


def _first_code(text: str) -> int:
    found = re.search(r"^[ \t]*[^\s#]", text, re.MULTILINE)
    return found.start() if found else 0


def _indent(text: str, at: int) -> int:
    end = at
    while end < len(text) and text[end] in " \t":
        end += 1
    return end - at


def _logical_line(text: str, at: int) -> tuple[int, str]:
    """Where the logical line ends that begins at `at`, and what Python may be shown of it."""
    first = at + _indent(text, at)
    end = _physical_end(text, at)
    line = text[at:end].rstrip("\n")
    if text[first : first + 1] in ("!", "%", ",", ";", "/", "?") or re.search(
        r"=[ \t]*[!%]|\?[ \t;]*$", line
    ):
        while text[end - 2 : end] == "\\\n" and end < len(text):
            end = _physical_end(text, end)
        rewritten = _rewritten(_JOINED.sub(" ", text[at:end].rstrip("\n")))
        if rewritten is not None:
            return end, rewritten + "\n" * text.count("\n", at, end)
    end = _end_of_tokens(text, at)
    return end, text[at:end]


def _physical_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _rewritten(line: str) -> str | None:
    """A line of IPython as Python; None if it is Python already."""
    if _HELP.fullmatch(line):
        return " " * _indent(line, 0) + "pass"
    if shell := _SHELL_LINE.fullmatch(line):
        return f"{shell[1]}get_ipython().system({shell[3].strip()!r})"
    if magic := _MAGIC_LINE.fullmatch(line):
        name, rest = magic[2], magic[3]
        if name in _TIMED:
            return f"{magic[1]}{rest[_options_end(rest) :] or 'pass'}"
        if name in ("system", "sx", "sc"):
            return f"{magic[1]}get_ipython().system({rest.strip()!r})"
        return f"{magic[1]}get_ipython().run_line_magic({name!r}, {rest.strip()!r})"
    if call := _AUTOCALL.fullmatch(line):
        words = call[4].split()
        arguments = ", ".join(words if call[2] == "/" else [repr(call[4])])
        return f"{call[1]}{call[3]}({arguments})"
    return None


def _options_end(rest: str) -> int:
    found = _OPTIONS.match(rest)
    return found.end() if found else 0


def _end_of_tokens(text: str, at: int) -> int:
    """The end of a logical line: the first end of a line outside brackets and strings."""
    depth = 0
    while found := _NOTABLE.search(text, at):
        mark, at = found[0], found.end()
        if mark in "\"'":
            at = _end_of_string(text, found.start())
        elif mark == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif mark == "\\":
            at += 1
        elif mark == "\n":
            if depth <= 0:
                return at
        else:
            depth += 1 if mark in "([{" else -1
    return len(text)


def _end_of_string(text: str, at: int) -> int:
    quote = text[at : at + 3]
    ends = _LONG_ENDS.get(quote)
    start = at + 3
    if ends is None:
        quote, start = text[at], at + 1
        ends = _SHORT_ENDS[quote]
    for found in ends.finditer(text, start):
        if found[0] == "\n":
            return found.start()
        if found[0] == quote:
            return found.end()
    return len(text)
