"""What WebAssembly text does, by its tokens. A binary module is not text, and not looked into."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis import paths
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Place
from aeolus_sandbox.tools.code_interpreter.analysis.report import Report

HUGE_PAGES: Final = 16384
"""Of 64 KiB: a gigabyte."""
# https://webassembly.github.io/spec/core/text/lexical.html; of a comment in a comment, the rest is read as code.
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|;;[^\n]*|\(;.*?(?:;\)|\Z)|[()]|[^\s()";]+|\n', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NUMBER: Final = re.compile(r"(0x[0-9a-fA-F_]{1,16}|[0-9_]{1,20})")
_WASI: Final = ("wasi_snapshot_preview1", "wasi_unstable", "wasi:")
_NEAR: Final = 10
"""How many tokens after its keyword the size of a memory may stand."""


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: Place

    @property
    def quoted(self) -> str | None:
        if not self.text.startswith('"'):
            return None
        return _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], self.text[1:-1])

    @property
    def number(self) -> int | None:
        found = _NUMBER.fullmatch(self.text)
        digits = found[1].replace("_", "") if found else ""
        return int(digits, 16 if digits.startswith("0x") else 10) if digits else None


def analyse_wasm(code: str, report: Report) -> None:
    """Analyse a module in WebAssembly's text format."""
    if not code.lstrip().startswith(("(", ";;")):
        return
    tokens: list[_Token] = []
    for token in _tokens(code):
        tokens.append(token)
        _text(token, report)
        if len(tokens) % 1000 == 0:
            report.check_time()
    for index, token in enumerate(tokens):
        if token.text == "import":
            _import(tokens[index : index + 3], report)
        elif token.text in ("memory", "memory.grow"):
            _memory(tokens, index, report)


def _tokens(code: str) -> Iterator[_Token]:
    line, line_start = 1, 0
    for found in _TOKEN.finditer(code):
        text = found[0]
        if not text.startswith((";", "(;", "\n")):
            yield _Token(text, (line, found.start() - line_start + 1))
        newlines = text.count("\n")
        if newlines:
            line, line_start = line + newlines, found.start() + text.rfind("\n") + 1


def _text(token: _Token, report: Report) -> None:
    text = token.quoted
    if text is None:
        return
    if paths.is_metadata_address(text):
        report.add(rule.METADATA_ADDRESS, token.at)
    elif text.startswith("/") and paths.is_secret(text):
        report.add(rule.SYSTEM_SECRET, token.at)


def _import(tokens: list[_Token], report: Report) -> None:
    texts = [token.quoted for token in tokens[1:]]
    if len(texts) < 2 or None in texts:
        return
    module, name = texts[0] or "", texts[1] or ""
    if not module.startswith(_WASI):
        return
    if name.startswith("sock_") or module.startswith("wasi:sockets"):
        report.add(rule.NETWORK, tokens[0].at)
    elif name == "proc_raise":
        report.add(rule.ENDS_KERNEL, tokens[0].at)


def _memory(tokens: list[_Token], index: int, report: Report) -> None:
    """Find a memory of a size that no sandbox has: the number after `memory`, or around `memory.grow`."""
    around = tokens[index + 1 : index + _NEAR]
    if tokens[index].text == "memory.grow":
        around = [*tokens[max(index - 1, 0) : index], *around[:4]]
    pages = next((token.number for token in around if token.number is not None), 0)
    if pages >= HUGE_PAGES:
        report.add(rule.HUGE_ALLOCATION, tokens[index].at)
