"""R code as a tree. There is no grammar of R to install; this reads as much of the language as rules ask about.

Where the text is no R, the reader goes on at the next token: the kernel parses a whole cell before it runs any of it.
The language: "R Language Definition", chapter 10.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from aeolus_sandbox.tools.code_interpreter.analysis.facts import Place

Kind = Literal[
    "name", "text", "number", "call", "index", "member", "assign", "binary", "function", "loop", "block"
]


@dataclass(frozen=True, slots=True)
class Node:
    """A part of the code.

    `call`: the function, then the arguments, with their `names`. `member`: an owner, and the member's name as `text`.
    `binary`: `text` is the operator. `loop`: `text` is its keyword, the parts are its condition, if any, and its
    body. `block`: any parts one after another.
    """

    kind: Kind
    at: Place
    text: str = ""
    parts: tuple["Node", ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: Place


_TOKEN: Final = re.compile(
    r"""(?P<space>[^\S\n]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<quoted>`(?:[^`\\]|\\.)*`)
    |(?P<number>0[xX][0-9a-fA-F]+[Li]?|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[Li]?)
    |(?P<name>(?:[^\W\d_]|\.(?!\d))[\w.]*)
    |(?P<line>\n|;)
    |(?P<operator>%[^%\n]*%|<<-|->>|:::|<-|->|\|>|<=|>=|==|!=|&&|\|\||::|:=|\[\[|.)""",
    re.DOTALL | re.VERBOSE,
)
_TOKENS_AT_ONCE: Final = 1000
_RAW: Final = re.compile(r"""[rR](["'])(-*)([(\[{])""")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_POWERS: Final = {
    **dict.fromkeys(("?",), (1, 2)),
    **dict.fromkeys(("=", ":="), (4, 3)),
    **dict.fromkeys(("<-", "<<-"), (6, 5)),
    **dict.fromkeys(("->", "->>"), (7, 8)),
    "~": (9, 10),
    **dict.fromkeys(("|", "||"), (11, 12)),
    **dict.fromkeys(("&", "&&"), (13, 14)),
    **dict.fromkeys(("<", ">", "<=", ">=", "==", "!="), (17, 18)),
    **dict.fromkeys(("+", "-"), (19, 20)),
    **dict.fromkeys(("*", "/"), (21, 22)),
    "|>": (23, 24),
    ":": (25, 26),
    "^": (30, 29),
}
"""How strongly an operator binds, to the left and to the right."""
_SPECIAL: Final = (23, 24)
_UNARY: Final = {"-": 27, "+": 27, "!": 15, "~": 9, "?": 1}
_POSTFIX: Final = 40


def _tokens(code: str) -> Iterator[_Token]:
    line, start, at = 1, 0, 0
    while at < len(code):
        raw = _RAW.match(code, at)
        end = code.find(f"{_CLOSING[raw[3]]}{raw[2]}{raw[1]}", raw.end()) if raw else -1
        if raw is not None and end >= 0:
            kind, text, after = "text", code[raw.end() : end], end + len(raw[2]) + 2
        else:
            found = _TOKEN.match(code, at)
            assert found is not None, "any character is an operator"
            kind, text, after = found.lastgroup or "operator", found[0], found.end()
            if kind in ("text", "quoted"):
                text = _unescaped(text[1:-1])
        if kind != "space":
            yield _Token("name" if kind == "quoted" else kind, text, (line, at - start + 1))
        newlines = code.count("\n", at, after)
        if newlines:
            line, start = line + newlines, code.rfind("\n", at, after) + 1
        at = after
    yield _Token("end", "", (line, at - start + 1))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(?:x([0-9a-fA-F]{1,2})|u\{?([0-9a-fA-F]{1,4})\}?|(.))", _escape, text, flags=re.DOTALL)


def _escape(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    if code:
        return chr(int(code, 16)) if not 0xD800 <= int(code, 16) < 0xE000 else "\ufffd"
    return {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}.get(found[3], found[3])


def parse(code: str, check_time: Callable[[], None]) -> Iterator[Node]:
    """Read the top-level expressions of a cell, one after another; `check_time` may end it by raising."""
    tokens: list[_Token] = []
    for token in _tokens(code):
        tokens.append(token)
        if len(tokens) % _TOKENS_AT_ONCE == 0:
            check_time()
    return _Parser(tokens, check_time).expressions()


class _Parser:
    """A precedence climber: each step takes at least one token, so that it ends."""

    def __init__(self, tokens: list[_Token], check_time: Callable[[], None]) -> None:
        self._tokens = tokens
        self._check_time = check_time
        self._next = 0
        self._closed_by: list[str] = [""]

    def expressions(self) -> Iterator[Node]:
        while self._peek().kind != "end":
            yield self._expression(0)
            while self._tokens[self._next].kind == "line":
                self._next += 1

    def _peek(self) -> _Token:
        # A line's end counts at top level and in braces, and nowhere else.
        while self._closed_by[-1] in (")", "]") and self._tokens[self._next].kind == "line":
            self._next += 1
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        if token.kind != "end":
            self._next += 1
        return token

    def _skip_lines(self) -> None:
        while self._tokens[self._next].kind == "line":
            self._next += 1

    def _expression(self, power: int) -> Node:
        left = self._first()
        while True:
            token = self._peek()
            if token.kind != "operator":
                return left
            if token.text in ("(", "[", "[[", "$", "@", "::", ":::"):
                left = self._postfix(left)
                continue
            powers = (
                _SPECIAL if token.text.startswith("%") and len(token.text) > 1 else _POWERS.get(token.text)
            )
            if powers is None or powers[0] < power:
                return left
            self._take()
            self._skip_lines()
            left = _operation(token, left, self._expression(powers[1]))

    def _first(self) -> Node:
        self._skip_lines()
        token = self._take()
        if token.kind == "name":
            return self._keyword(token)
        if token.kind in ("text", "number"):
            return Node("text" if token.kind == "text" else "number", token.at, token.text)
        if token.text in ("(", "{"):
            return self._block(token)
        if token.text == "\\":
            return self._function(token)
        if token.text in _UNARY:
            return Node("binary", token.at, token.text, (self._expression(_UNARY[token.text]),))
        return Node("block", token.at)

    def _keyword(self, token: _Token) -> Node:
        if token.text == "function":
            return self._function(token)
        if token.text == "repeat":
            return Node("loop", token.at, "repeat", (self._expression(4),))
        if token.text in ("while", "for", "if") and self._peek().text == "(":
            condition = self._block(self._take())
            body = self._expression(4)
            if token.text != "if":
                return Node("loop", token.at, token.text, (condition, body))
            return Node("block", token.at, "", (condition, body, *self._otherwise()))
        return Node("name", token.at, token.text)

    def _otherwise(self) -> tuple[Node, ...]:
        here = self._next
        self._skip_lines()
        if self._tokens[self._next].text == "else" and self._tokens[self._next].kind == "name":
            self._next += 1
            return (self._expression(4),)
        self._next = here
        return ()

    def _function(self, token: _Token) -> Node:
        parameters = self._arguments(self._take()) if self._peek().text == "(" else ((), ())
        return Node("function", token.at, "", (*parameters[0], self._expression(4)), parameters[1])

    def _block(self, opening: _Token) -> Node:
        closing = _CLOSING[opening.text]
        self._check_time()
        self._closed_by.append(closing)
        parts: list[Node] = []
        while self._peek().kind != "end" and self._peek().text != closing:
            if self._peek().kind == "line":
                self._take()
            else:
                parts.append(self._expression(0))
        self._closed_by.pop()
        if self._tokens[self._next].text == closing:
            self._next += 1
        return (
            parts[0]
            if len(parts) == 1 and opening.text == "("
            else Node("block", opening.at, "", tuple(parts))
        )

    def _postfix(self, left: Node) -> Node:
        token = self._take()
        if token.text in ("(", "[", "[["):
            parts, names = self._arguments(token)
            return Node("call" if token.text == "(" else "index", left.at, "", (left, *parts), names)
        member = self._take()
        return Node("member", left.at, member.text, (left,), (token.text,))

    def _arguments(self, opening: _Token) -> tuple[tuple[Node, ...], tuple[str, ...]]:
        closing = ")" if opening.text == "(" else "]"
        self._check_time()
        self._closed_by.append(closing)
        parts: list[Node] = []
        names: list[str] = []
        while self._peek().kind != "end" and self._peek().text != closing:
            if self._peek().text == ",":
                self._take()
                continue
            argument = self._expression(0)
            is_named = argument.kind == "assign" and argument.text == "="
            names.append(argument.parts[0].text if is_named else "")
            parts.append(argument.parts[1] if is_named else argument)
        self._closed_by.pop()
        for _ in range(2 if opening.text == "[[" else 1):
            if self._tokens[self._next].text == closing:
                self._next += 1
        return tuple(parts), tuple(names)


def _operation(token: _Token, left: Node, right: Node) -> Node:
    if token.text in ("<-", "<<-", "=", ":="):
        return Node("assign", token.at, token.text, (left, right))
    if token.text in ("->", "->>"):
        return Node("assign", token.at, token.text, (right, left))
    if token.text == "|>" and right.kind == "call":
        return Node("call", right.at, "", (right.parts[0], left, *right.parts[1:]), ("", *right.names))
    return Node("binary", left.at, token.text, (left, right))
