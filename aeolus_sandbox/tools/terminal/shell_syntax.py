"""A shell command as plain frozen data: the only door to tree-sitter and its Bash grammar.

`parse` never raises on any text. It bounds its own work, because the grammar's error recovery can take time and
memory that grow with the square of hostile text (a row of `|`, say): see `Meter`.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import tree_sitter
import tree_sitter_bash

from aeolus_sandbox.tools.terminal import shell_tree as sh

MAX_NESTING: Final = 48
"""Statements and substitutions inside each other; each costs a few Python frames."""
READ_PIECE_BYTES: Final = 512
_LANGUAGE: Final = tree_sitter.Language(tree_sitter_bash.language())


class _Parsers(threading.local):
    """One parser a thread and grammar: a parser keeps state while it runs."""

    def __init__(self) -> None:
        self._by_grammar: dict[tree_sitter.Language, tree_sitter.Parser] = {}

    def of(self, grammar: tree_sitter.Language) -> tree_sitter.Parser:
        if grammar not in self._by_grammar:
            self._by_grammar[grammar] = tree_sitter.Parser(grammar)
        return self._by_grammar[grammar]


_PARSERS: Final = _Parsers()


class ParsingTooCostly(Exception):
    """The parser used up the work that one check may cost."""


@dataclass(slots=True)
class Meter:
    """What one check may still spend on parsing: CPU seconds of this thread, and bytes looked at.

    CPU time and not wall time, so that a busy machine changes no answer; well-formed scripts of the longest length
    allowed stay far below the default.
    """

    cpu_seconds: float = 0.25

    def parse(self, source: bytes, grammar: tree_sitter.Language = _LANGUAGE) -> tree_sitter.Tree:
        """Parse, or raise `ParsingTooCostly`."""
        parser = _PARSERS.of(grammar)
        started = time.thread_time()
        deadline = started + self.cpu_seconds
        reads_left = 64 + 8 * len(source) // READ_PIECE_BYTES

        def read(offset: int, _point: object) -> bytes:
            nonlocal reads_left
            reads_left -= 1
            return source[offset : offset + READ_PIECE_BYTES] if reads_left > 0 else b""

        def too_costly(_offset: int, _has_error: bool) -> bool:
            return reads_left <= 0 or time.thread_time() > deadline

        try:
            tree = parser.parse(read, encoding="utf8", progress_callback=too_costly)
        except ValueError as error:
            parser.reset()
            raise ParsingTooCostly from error
        finally:
            self.cpu_seconds -= time.thread_time() - started
        if reads_left <= 0:  # it was given an early end of text
            raise ParsingTooCostly
        return tree


def parse(text: str, meter: Meter) -> sh.Script:
    """Parse a shell command.

    Raises:
        ParsingTooCostly: The meter ran out.
    """
    source = sh.cleaned(text).encode()
    root = meter.parse(source).root_node
    reader = _Reader(source)
    return sh.Script(reader.block(root, root.children, 0), source, tuple(reader.unread))


# fmt: off
_SEQUENCES: Final = frozenset((
    "program", "compound_statement", "do_group", "subshell", "if_statement", "while_statement",
    "case_statement", "case_item", "elif_clause", "else_clause", "c_style_for_statement", "negated_command",
    "ERROR",
))
# fmt: on


class _Reader:
    """Turns tree-sitter's nodes into our data."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.unread: list[sh.Unread] = []

    def raw(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8", "replace")

    # Statements

    def statement(self, node: tree_sitter.Node, depth: int) -> sh.Statement | None:
        """The statement that a node is, or None if it is none (a comment, a keyword, a word)."""
        if depth > MAX_NESTING:
            return sh.TooDeep(node.start_byte)
        kind, children = node.type, node.children
        if kind in _SEQUENCES:
            return self.block(node, children, depth + 1)
        if kind == "list":
            return self.block(node, list(_flattened(node)), depth)
        if kind == "pipeline":
            return sh.Pipeline(tuple(self.statements(children, depth + 1)), node.start_byte)
        if kind == "redirected_statement":
            return self.redirected(node, children, depth)
        if kind == "function_definition":
            return self.function(node, children, depth)
        if kind == "for_statement":
            return self.loop(node, children, depth)
        if kind in ("command", "variable_assignments", "declaration_command"):
            return self.command(node, children, depth)
        if kind == "variable_assignment":
            return self.command(node, [node], depth)
        return None

    def block(self, node: tree_sitter.Node, children: list[tree_sitter.Node], depth: int) -> sh.Block:
        if node.is_error:
            self.unread.append(sh.Unread(self.raw(node.start_byte, node.end_byte), node.start_byte))
        found = tuple(self.statements(children, depth))
        return sh.Block(found, node.start_byte, subshell=node.type == "subshell")

    def statements(self, children: Iterable[tree_sitter.Node], depth: int) -> Iterator[sh.Statement]:
        """The statements among some nodes; an `&` puts the one before it into the background."""
        last: sh.Statement | None = None
        brace = -1
        for child in children:
            if child.type == "&" and last is not None:
                last = sh.Background(last, last.at)
                continue
            if child.type == "{":
                brace = child.end_byte
            if not child.is_named or child.is_missing:
                continue
            if isinstance(last, sh.Command) and last.at == brace - 1 and child.type in _WORDS:
                last = replace(last, words=(*last.words, self.word(child, depth)))
                continue
            found = self.statement(child, depth) or self.loose(child, depth)
            if found is not None:
                if last is not None:
                    yield last
                last = sh.with_brace(found) if child.start_byte == brace else found
        if last is not None:
            yield last

    def loose(self, node: tree_sitter.Node, depth: int) -> sh.Statement | None:
        """A word outside a command (a `case` subject, say): nothing runs but what is substituted in it.

        The name of a command that the parser could not read on still counts as a command.
        """
        if node.type == "command_name":
            return sh.Command((self.word(node, depth),), node.start_byte)
        if node.type == "comment" or not node.children:
            return None
        return sh.Command((), node.start_byte, (sh.Assignment("", self.word(node, depth), append=False),))

    def command(self, node: tree_sitter.Node, children: list[tree_sitter.Node], depth: int) -> sh.Command:
        words: list[sh.Word] = []
        assignments: list[sh.Assignment] = []
        redirects: list[sh.Redirect] = []
        end = node.start_byte
        for child in children:
            kind = child.type
            if kind == "variable_assignment":
                assignments.append(self.assignment(child, depth))
            elif kind in ("file_redirect", "herestring_redirect"):
                redirects.extend(self.file_redirect(child, depth))
            elif child.is_named and node.type == "command":
                word = self.word(child, depth)
                if (
                    words
                    and child.start_byte > end
                    and not self.source[end : child.start_byte].replace(b"\\\n", b"")
                ):
                    words[-1] = replace(
                        words[-1], parts=words[-1].parts + word.parts
                    )  # a word over two lines
                else:
                    words.append(word)
                end = child.end_byte
            elif child.is_named:  # `export NAME`, `declare -x`: nothing runs but what is substituted
                assignments.append(sh.Assignment("", self.word(child, depth), append=False))
        return sh.Command(tuple(words), node.start_byte, tuple(assignments), tuple(redirects))

    def assignment(self, node: tree_sitter.Node, depth: int) -> sh.Assignment:
        name, *rest = node.children
        append = any(child.type == "+=" for child in rest)
        values = [child for child in rest if child.is_named]
        if not values:
            return sh.Assignment(self.raw(name.start_byte, name.end_byte), sh.Word((), node.end_byte), append)
        value = self.word(values[0], depth, expression=values[0].type == "array")
        return sh.Assignment(self.raw(name.start_byte, name.end_byte), value, append)

    def function(self, node: tree_sitter.Node, children: list[tree_sitter.Node], depth: int) -> sh.Statement:
        name = next((child for child in children if child.type == "word"), node)
        bodies = [child for child in children if child.is_named and child.id != name.id]
        body = self.block(node, [child for child in bodies if "redirect" not in child.type], depth + 1)
        redirects = [
            r for child in bodies if child.type == "file_redirect" for r in self.file_redirect(child, depth)
        ]
        whole: sh.Statement = sh.Redirected(body, tuple(redirects), node.start_byte) if redirects else body
        return sh.Function(sh.unescaped(self.raw(name.start_byte, name.end_byte)), whole, node.start_byte)

    def loop(self, node: tree_sitter.Node, children: list[tree_sitter.Node], depth: int) -> sh.Loop:
        variable = next((child for child in children if child.type == "variable_name"), node)
        values = tuple(self.word(child, depth) for child in children if child.type in _WORDS)
        bodies = [child for child in children if child.type in ("do_group", "compound_statement", "ERROR")]
        body = self.block(node, bodies, depth + 1)
        return sh.Loop(self.raw(variable.start_byte, variable.end_byte), values, body, node.start_byte)

    # Redirects

    def redirected(
        self, node: tree_sitter.Node, children: list[tree_sitter.Node], depth: int
    ) -> sh.Statement:
        body: sh.Statement = sh.Command((), node.start_byte)
        redirects: list[sh.Redirect] = []
        after: list[tree_sitter.Node] = []  # what follows a here-document's opening on the same line
        words: list[sh.Word] = []
        for child in children:
            if child.type == "heredoc_redirect":
                redirects.extend(self.heredoc(child, after, words, depth))
            elif "redirect" in child.type:
                redirects.extend(self.file_redirect(child, depth))
            elif child.is_named:
                body = self.statement(child, depth + 1) or body
        if isinstance(body, sh.Command):
            body = replace(body, words=(*body.words, *words), redirects=(*body.redirects, *redirects))
        elif redirects:
            body = sh.Redirected(body, tuple(redirects), node.start_byte)
        piped = [
            stage
            for child in after
            if child.type == "pipeline"
            for stage in self.statements(child.children, depth)
        ]
        if piped:
            body = sh.Pipeline((body, *piped), node.start_byte)
        rest = list(self.statements([child for child in after if child.type != "pipeline"], depth + 1))
        return sh.Block((body, *rest), node.start_byte) if rest else body

    def heredoc(
        self, node: tree_sitter.Node, after: list[tree_sitter.Node], words: list[sh.Word], depth: int
    ) -> Iterator[sh.Redirect]:
        verbatim = False
        for child in node.children:
            if child.type == "heredoc_start":
                verbatim = any(mark in self.raw(child.start_byte, child.end_byte) for mark in "'\"\\")
            elif child.type == "heredoc_body":
                raw = self.raw(child.start_byte, child.end_byte)
                text = sh.Word((sh.Text(sh.shield(raw)),), child.start_byte)
                yield sh.Redirect("<<", text if verbatim else self.word(child, depth))
            elif "redirect" in child.type:
                yield from self.file_redirect(child, depth)
            elif child.type in _WORDS:
                words.append(self.word(child, depth))
            elif child.is_named and child.type != "heredoc_end":
                after.append(child)

    def file_redirect(self, node: tree_sitter.Node, depth: int) -> Iterator[sh.Redirect]:
        operator = ""
        for child in node.children:
            if child.type in _WORDS:
                yield sh.Redirect(operator or ">", self.word(child, depth))
            elif child.type != "file_descriptor":
                operator += self.raw(child.start_byte, child.end_byte)  # `<>` arrives as `<` and an error

    # Words

    def word(self, node: tree_sitter.Node, depth: int, *, expression: bool = False) -> sh.Word:
        """A word; with `expression`, a thing whose value we cannot tell, for what is substituted inside it."""
        parts = (
            [self.expression(node, depth, quoted=False)]
            if expression
            else self.parts(node, depth, quoted=False)
        )
        return sh.Word(tuple(parts), node.start_byte)

    def parts(self, node: tree_sitter.Node, depth: int, *, quoted: bool) -> Iterator[sh.Part]:
        kind, start, end = node.type, node.start_byte, node.end_byte
        if node.is_error:
            self.unread.append(sh.Unread(self.raw(start, end), start))
        if kind == "raw_string":
            yield sh.Text(sh.shield(self.raw(start + 1, end - 1)))
        elif kind == "ansi_c_string":
            yield sh.Text(sh.shield(sh.decode_escapes(self.raw(start + 2, end - 1))))
        elif kind in ("string", "heredoc_body"):
            edge = 1 if kind == "string" else 0
            yield sh.Text("")  # an empty string is a word too
            yield from self.with_gaps(node, start + edge, end - edge, depth, quoted=True)
        elif kind in ("command_name", "concatenation", "translated_string", "ERROR"):
            yield from self.with_gaps(node, start, end, depth, quoted=quoted)
        elif kind == "simple_expansion":
            yield sh.Variable(self.raw(start + 1, end), quoted)
        elif kind == "expansion":
            yield self.expansion(node, depth, quoted=quoted)
        elif kind in ("command_substitution", "process_substitution"):
            yield self.substitution(node, depth, quoted=quoted)
        elif node.child_count and kind not in ("word", "number", "string_content", "heredoc_content"):
            yield self.expression(node, depth, quoted=quoted)
        else:
            raw = self.raw(start, end)
            yield sh.Text(sh.unescaped_in_quotes(raw) if quoted else sh.unescaped(raw))

    def with_gaps(
        self, node: tree_sitter.Node, start: int, end: int, depth: int, *, quoted: bool
    ) -> Iterator[sh.Part]:
        """The parts of the children, and the text between them, which the grammar leaves out of its nodes."""
        at = start
        for child in node.children:
            if child.start_byte < start or child.end_byte > end or (not child.is_named and child.type != "$"):
                continue
            if child.start_byte > at:
                gap = self.raw(at, child.start_byte)
                yield sh.Text(sh.unescaped_in_quotes(gap) if quoted else sh.unescaped(gap))
            if child.type != "$" or node.type != "translated_string":
                yield from self.parts(child, depth, quoted=quoted)
            at = max(at, child.end_byte)
        if at < end:
            gap = self.raw(at, end)
            yield sh.Text(sh.unescaped_in_quotes(gap) if quoted else sh.unescaped(gap))

    def expansion(self, node: tree_sitter.Node, depth: int, *, quoted: bool) -> sh.Part:
        """`${...}`: its name, operator and fallback word where it is as simple as that."""
        inner = node.children[1:-1]
        names = ("variable_name", "special_variable_name")
        if depth >= MAX_NESTING or not inner or inner[0].type not in names:
            return self.expression(node, depth, quoted=quoted)
        name = self.raw(inner[0].start_byte, inner[0].end_byte)
        if len(inner) == 1:
            return sh.Variable(name, quoted)
        operator = self.raw(inner[1].start_byte, inner[1].end_byte)
        if operator not in (":-", "-", ":=", "=", ":?", "?", ":+", "+"):
            return self.expression(node, depth, quoted=quoted)
        parts = tuple(part for child in inner[2:] for part in self.parts(child, depth + 1, quoted=quoted))
        return sh.Variable(name, quoted, operator, sh.Word(parts, node.start_byte))

    def substitution(self, node: tree_sitter.Node, depth: int, *, quoted: bool) -> sh.Substitution:
        kind: Literal["command", "process"] = "command" if node.type == "command_substitution" else "process"
        if depth >= MAX_NESTING:
            return sh.Substitution(sh.Block((sh.TooDeep(node.start_byte),), node.start_byte), quoted, kind)
        return sh.Substitution(self.block(node, node.children, depth + 1), quoted, kind)

    def expression(self, node: tree_sitter.Node, depth: int, *, quoted: bool) -> sh.Substitution:
        """Every substitution below a node whose value nobody can tell."""
        found: list[sh.Statement] = []
        waiting = list(node.children)
        while waiting:
            child = waiting.pop()
            if child.type in ("command_substitution", "process_substitution"):
                found.append(self.substitution(child, depth, quoted=quoted).body)
            else:
                waiting.extend(child.children)
        return sh.Substitution(sh.Block(tuple(found), node.start_byte), quoted, "expression")


# fmt: off
_WORDS: Final = frozenset((
    "word", "string", "raw_string", "ansi_c_string", "translated_string", "number", "concatenation",
    "simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion",
    "brace_expression", "extglob_pattern",
))
# fmt: on


def _flattened(node: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    """The members of `a && b && c`, which the grammar nests to the left, one level for each."""
    rights: list[list[tree_sitter.Node]] = []
    while node.type == "list" and node.children:
        first, *rest = node.children
        rights.append(rest)
        node = first
    yield node
    for rest in reversed(rights):
        yield from rest
