"""Walks a parsed command as the shell would, far enough to know which commands it runs with which words.

Simple assignments, `cd`, functions, loops over words, wrappers, nested scripts and what a pipe carries are followed;
nothing is run. Every step costs `Work`, so that the walk ends on any input.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

from aeolus_sandbox.tools.terminal import danger_paths as paths
from aeolus_sandbox.tools.terminal import danger_rules as rules
from aeolus_sandbox.tools.terminal import shell_expansion as ex
from aeolus_sandbox.tools.terminal import shell_tree as sh
from aeolus_sandbox.tools.terminal.command_follow import FOLLOWED, SHELLS
from aeolus_sandbox.tools.terminal.command_output import Feed, printed, read_from
from aeolus_sandbox.tools.terminal.command_wrappers import WRAPPERS, unwrap
from aeolus_sandbox.tools.terminal.danger_paths import Verdict
from aeolus_sandbox.tools.terminal.shell_syntax import Meter, parse

MAX_DEPTH: Final = 40
MAX_LOOP_VALUES: Final = 16
MAX_UNREAD_CHARACTERS: Final = 16 * 1024
_KEYWORDS: Final = frozenset(
    {"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}", "function"}
)
# Characters without a width, direction controls, fillers: none of them belongs into the name of a command.
_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_DOWNLOADED: Final = Verdict(
    "downloaded_text_run_as_shell", "suspicious", "it runs downloaded text as shell commands"
)
_DECODED: Final = Verdict("decoded_text_run_as_shell", "suspicious", "it runs decoded text as shell commands")
_COMPUTED: Final = Verdict(
    "computed_command_name", "suspicious", "which command it runs is computed while it runs"
)
_HIDDEN: Final = Verdict(
    "invisible_characters", "suspicious", "the name of a command has invisible characters in it"
)
_NESTED: Final = Verdict("too_deeply_nested", "suspicious", "it is nested too deeply to be checked")
_BOMB: Final = Verdict("fork_bomb", "danger", "it starts itself again beside itself without end")


_PRINTS: Final = {"download": ex.DOWNLOADED, "decode": ex.DECODED}


class Walker:
    """One walk; `report` gets what is found, with a byte offset in the outermost text."""

    def __init__(self, report: Callable[[Verdict, int], None], work: ex.Work, meter: Meter) -> None:
        self._report = report
        self._work = work
        self._meter = meter
        self._anchor: int | None = None  # where a nested script stands in the outermost text
        self._depth = 0
        # By function: what it calls, whether beside itself, and where.
        self._calls: dict[str, dict[str, tuple[bool, int]]] = {}

    def report(self, verdict: Verdict, at: int) -> None:
        """Report at a place; in a nested script, at the place of that script."""
        self._report(verdict, at if self._anchor is None else self._anchor)

    # Statements

    def visit(self, statement: sh.Statement, scope: ex.Scope, stdin: Feed | None = None) -> Feed | None:
        """Follow a statement; what it prints comes back."""
        self._work.spend(20)
        if self._depth >= MAX_DEPTH:
            self.report(_NESTED, statement.at)
            return None
        self._depth += 1
        try:
            return self._statement(statement, scope, stdin)
        finally:
            self._depth -= 1

    def _statement(self, statement: sh.Statement, scope: ex.Scope, stdin: Feed | None) -> Feed | None:
        match statement:
            case sh.Command():
                return self._command(statement, scope, stdin)
            case sh.Pipeline():
                for stage in statement.stages:
                    stdin = self.visit(stage, scope.subshell(forked=True), stdin)
                return stdin
            case sh.Block():
                inner = scope.subshell() if statement.subshell else scope
                feeds = [self.visit(one, inner, stdin) for one in statement.statements]
                return next((feed for feed in feeds if feed is not None), None)
            case sh.Background():
                return self.visit(statement.body, scope.subshell(forked=True), stdin)
            case sh.Redirected():
                return self.visit(statement.body, scope, self._redirects(statement, scope, stdin))
            case sh.Function():
                scope.functions[statement.name] = statement
                self._body(statement, scope.subshell(), ())
            case sh.Loop():
                return self._loop(statement, scope, stdin)
            case sh.TooDeep():
                self.report(_NESTED, statement.at)
        return None

    def _loop(self, loop: sh.Loop, scope: ex.Scope, stdin: Feed | None) -> Feed | None:
        values = [field for word in loop.values for field in self._expand(word, scope)]
        feed = None
        for value in values[:MAX_LOOP_VALUES] or [ex.UNKNOWN]:
            scope.variables[loop.variable] = value
            feed = self.visit(loop.body, scope, stdin)
        return feed

    def _body(self, function: sh.Function, scope: ex.Scope, args: Sequence[str]) -> None:
        scope.inside, scope.forked, scope.positional = function.name, False, tuple(args)
        scope.calls = (*scope.calls, function.name)
        self.visit(function.body, scope)

    def _command(self, command: sh.Command, scope: ex.Scope, stdin: Feed | None) -> Feed | None:
        fields = [field for word in command.words for field in self._expand(word, scope)]
        for assignment in command.assignments:
            value = ex.expand_one(assignment.value, scope, self._substitute_in(scope))
            if not command.words:
                before = scope.variables.get(assignment.name, "") if assignment.append else ""
                scope.variables[assignment.name] = before + value
        stdin = self._redirects(command, scope, stdin)
        return self.run(fields, command.at, scope, stdin)

    def _expand(self, word: sh.Word, scope: ex.Scope) -> list[str]:
        return ex.expand(word, scope, self._substitute_in(scope))

    def _substitute_in(self, scope: ex.Scope) -> Callable[[sh.Substitution], str]:
        def substitute(part: sh.Substitution) -> str:
            feed = self.visit(part.body, scope.subshell())
            if feed is None or part.kind == "expression" or feed.kind == "paths":
                return ex.UNKNOWN
            if feed.kind != "text":
                return _PRINTS[feed.kind]
            return ex.PROCESS + feed.text if part.kind == "process" else feed.text.rstrip("\n")

        return substitute

    def _redirects(self, of: sh.Command | sh.Redirected, scope: ex.Scope, stdin: Feed | None) -> Feed | None:
        """Judge what is written to; what is read becomes the standard input."""
        for redirect in of.redirects:
            if redirect.operator.startswith("<<"):
                stdin = Feed("text", ex.expand_one(redirect.target, scope, self._substitute_in(scope)))
                continue
            for path in self._expand(redirect.target, scope):
                if ">" in redirect.operator:
                    for verdict in paths.judge_write(
                        path, scope.cwd, append=redirect.operator.endswith(">>")
                    ):
                        self.report(verdict, redirect.target.at)
                elif redirect.operator == "<":
                    stdin = read_from(path)
        return stdin

    # Commands

    def run(self, argv: Sequence[str], at: int, scope: ex.Scope, stdin: Feed | None = None) -> Feed | None:
        """Follow a simple command, through its wrappers."""
        self._work.spend(20 + len(argv))
        start = next((index for index, field in enumerate(argv) if field.replace(ex.UNSET, "")), len(argv))
        argv = argv[start:]
        name = self._name(argv[0], at, scope) if argv else None
        if name is None:
            return None
        self._called(name, at, scope)
        if name in scope.functions:
            if name not in scope.calls and len(scope.calls) < MAX_DEPTH:
                self._body(scope.functions[name], scope.subshell(), argv[1:])
            return None
        if name in WRAPPERS:
            return self._wrapped(name, argv[1:], at, scope, stdin)
        followed = FOLLOWED.get(name)
        if followed is not None:
            return followed(self, argv[1:], at, scope, stdin)
        for verdict in rules.judge(name, argv[1:], scope.cwd):
            self.report(verdict, at)
        return printed(name, argv[1:], stdin, scope.cwd)

    def _name(self, field: str, at: int, scope: ex.Scope) -> str | None:
        """The name of a command without its directory, or None where nobody can tell it."""
        name = field.replace(ex.UNSET, "")
        if name == ex.ITSELF:
            if scope.forked:
                self.report(_BOMB, at)
            return None
        if _INVISIBLE.search(name):
            self.report(_HIDDEN, at)
            name = _INVISIBLE.sub("", name)
        name = name.rsplit("/", 1)[-1]
        if ex.UNTOLD.search(name):
            self.report(_DOWNLOADED if ex.DOWNLOADED in name else _COMPUTED, at)
            return None
        if ("*" in name or "?" in name or "[" in name[:-1]) and len(name) < 64:
            if any(fnmatchcase(known, name) for known in (*rules.RULES, *SHELLS, "find", "mkfs")):
                self.report(_COMPUTED, at)
            return None
        return sh.plain(name)

    def _called(self, name: str, at: int, scope: ex.Scope) -> None:
        if scope.inside is not None:
            calls = self._calls.setdefault(scope.inside, {})
            forked, first_at = calls.get(name, (False, at if self._anchor is None else self._anchor))
            calls[name] = (forked or scope.forked, first_at)

    def _wrapped(
        self, name: str, args: Sequence[str], at: int, scope: ex.Scope, stdin: Feed | None
    ) -> Feed | None:
        inner = unwrap(name, args)
        words = inner.words
        if inner.directory is not None or name == "coproc":
            scope = scope.subshell(forked=scope.forked or name == "coproc")
            scope.cwd = inner.directory or scope.cwd
        if name == "xargs" and stdin is not None and stdin.kind in ("text", "paths"):
            given = stdin.text.split()[:64]
            words = tuple(g for w in words for g in (given if w and w == inner.replaced else [w]))
            words += () if inner.replaced else tuple(given)
        for text in inner.scripts:
            self.script(text, at, scope)
        if name == "command" and not words:
            return Feed("text", args[-1]) if args else None
        if self._depth >= MAX_DEPTH:
            self.report(_NESTED, at)
            return None
        self._depth += 1
        try:
            return self.run(words, at, scope, stdin)
        finally:
            self._depth -= 1

    def feed(self, stdin: Feed | None, at: int, scope: ex.Scope) -> None:
        """Follow what a shell reads as its script."""
        if stdin is not None and stdin.kind != "paths":
            self.script(stdin.text or _PRINTS.get(stdin.kind, ""), at, scope)

    def script(self, text: str, at: int, scope: ex.Scope) -> None:
        """Follow text that a shell runs."""
        for mark, verdict in ((ex.DOWNLOADED, _DOWNLOADED), (ex.DECODED, _DECODED)):
            if mark in text:
                self.report(verdict, at)
        source = ex.runnable(text.strip(ex.DOWNLOADED + ex.DECODED))
        self._work.spend(200 + len(source))
        if self._depth >= MAX_DEPTH:
            self.report(_NESTED, at)
            return
        outer = self._anchor
        self._anchor = at if outer is None else outer
        try:
            self.whole(parse(source, self._meter), scope)
        finally:
            self._anchor = outer

    def whole(self, script: sh.Script, scope: ex.Scope) -> None:
        """Follow a parsed text, and what of it could not be parsed."""
        self.visit(script.body, scope)
        for unread in script.unread[:8]:
            found = _word_by_word(unread.text, self._work, self._meter)
            if found is not None:
                self.report(found, unread.at)

    def find_fork_bombs(self) -> None:
        """Report functions that get back to themselves through a pipe or the background."""
        for function, calls in self._calls.items():
            for called, (forked, at) in calls.items():
                if forked and called in self._calls and self._reaches(called, function):
                    self._report(_BOMB, at)

    def _reaches(self, start: str, goal: str) -> bool:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            one = waiting.pop()
            if one == goal:
                return True
            if one not in seen:
                seen.add(one)
                self._work.spend(1 + len(self._calls.get(one, ())))
                waiting.extend(self._calls.get(one, ()))
        return False


def _word_by_word(text: str, work: ex.Work, meter: Meter) -> Verdict | None:
    """What is wrong with text that the parser could not read, taken as plain words.

    Text that the shell itself would refuse, an unclosed quote say, is left to the shell.
    """
    if len(text) > MAX_UNREAD_CHARACTERS:
        return Verdict("not_parsed", "suspicious", "a long part of it could not be parsed")
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    work.spend(len(text))
    try:
        tokens = list(lexer)
    except ValueError:
        return None
    found: list[Verdict] = []
    walker = Walker(lambda verdict, _at: found.append(verdict), work, meter)
    words: list[sh.Word] = []
    for token in (*tokens, ";"):
        if token.strip("();<>|&\n"):
            if words or token not in _KEYWORDS:
                words.append(sh.Word((sh.Text(token),), 0))
        else:
            walker.visit(sh.Command(tuple(words), 0), ex.Scope(work))
            words = []
    if not found:
        return None
    why = f"a part of it could not be parsed, and taken word by word {found[0].message}"
    return Verdict("not_parsed", "suspicious", f"{why} ({found[0].rule})")
