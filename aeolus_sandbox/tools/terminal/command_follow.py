"""Commands that change what is known, or run text or other commands: what following each of them means."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from aeolus_sandbox.tools.terminal import danger_rules as rules
from aeolus_sandbox.tools.terminal import shell_expansion as ex
from aeolus_sandbox.tools.terminal import shell_tree as sh
from aeolus_sandbox.tools.terminal.command_output import Feed, read_from
from aeolus_sandbox.tools.terminal.command_wrappers import WRAPPERS, unwrap
from aeolus_sandbox.tools.terminal.danger_paths import resolve

if TYPE_CHECKING:
    from aeolus_sandbox.tools.terminal.command_walk import Walker

SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish"})
_STDIN: Final = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})


def _cd(walker: "Walker", args: Sequence[str], _at: int, scope: ex.Scope, _stdin: Feed | None) -> None:
    operands = rules.options(args).operands
    path = operands[0] if operands else ex.HOME
    found = resolve(path, scope.cwd) if path != "-" and not ex.UNTOLD.search(path + ex.UNSET) else None
    if found is None:
        scope.cwd = None
    else:
        scope.cwd = "/".join(found) if found[:1] == (ex.HOME,) else "/" + "/".join(found)


def _set(walker: "Walker", args: Sequence[str], _at: int, scope: ex.Scope, _stdin: Feed | None) -> None:
    if "--" in args:
        scope.positional = tuple(args[args.index("--") + 1 :])


def _shell(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, stdin: Feed | None) -> None:
    letters = ""
    index = 0
    while index < len(args) and args[index][:1] in ("-", "+") and args[index] not in ("-", "--"):
        option = args[index]
        index += 2 if option in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
        letters += "" if option.startswith("--") else option[1:]
    index += args[index : index + 1] == ["--"]
    operands = args[index:]
    if "c" in letters:
        inner = scope.subshell()
        inner.positional = tuple(operands[2:])
        inner.variables["0"] = operands[1] if len(operands) > 1 else "sh"
        walker.script(operands[0] if operands else "", at, inner)
        return
    if operands and "s" not in letters and operands[0] not in _STDIN:
        stdin = read_from(operands[0])
    walker.feed(stdin, at, scope.subshell())


def _source(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, stdin: Feed | None) -> None:
    if args:
        walker.feed(stdin if args[0] in _STDIN else read_from(args[0]), at, scope)


def _eval(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, _stdin: Feed | None) -> None:
    walker.script(" ".join(args), at, scope)


def _trap(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, _stdin: Feed | None) -> None:
    operands = rules.options(args).operands
    if len(operands) > 1:
        walker.script(operands[0], at, scope.subshell())


def _alias(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, _stdin: Feed | None) -> None:
    for arg in args:
        walker.script(arg.partition("=")[2], at, scope.subshell())


def _find(walker: "Walker", args: Sequence[str], at: int, scope: ex.Scope, _stdin: Feed | None) -> Feed:
    find = rules.read_find(args)
    removes = False
    for words in find.runs:
        removes = removes or _head(words) in ("rm", "unlink", "shred")
        what = ex.UNKNOWN if find.narrowed or removes else find.paths[0]
        walker.run([what if sh.plain(word) == "{}" else word for word in words], at, scope.subshell())
    for verdict in rules.judge_find(find, scope.cwd, removes=removes):
        walker.report(verdict, at)
    return Feed("paths", "" if find.narrowed else " ".join(find.paths))


def _head(words: Sequence[str]) -> str:
    """The name of the command behind simple wrappers."""
    while words:
        name = sh.plain(words[0]).rsplit("/", 1)[-1]
        if name not in WRAPPERS:
            return name
        words = unwrap(name, words[1:]).words
    return ""


Follow = Callable[["Walker", Sequence[str], int, ex.Scope, Feed | None], Feed | None]
FOLLOWED: Final[dict[str, Follow]] = {
    "cd": _cd,
    "pushd": _cd,
    "set": _set,
    "eval": _eval,
    "source": _source,
    ".": _source,
    "trap": _trap,
    "alias": _alias,
    "find": _find,
    **dict.fromkeys(SHELLS, _shell),
}
