"""Commands that run the command that follows them: `sudo`, `env`, `timeout`, ..."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.tools.terminal.shell_expansion import UNSET
from aeolus_sandbox.tools.terminal.shell_tree import plain


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How to find the command that a wrapper runs."""

    valued: str = ""
    """Letters of the options that take a value."""
    long: tuple[str, ...] = ()
    """Long options that take their value as the next word."""
    operands: int = 0
    """Operands before the command."""
    assigns: bool = False
    """Whether `NAME=value` may stand before the command."""
    text: bool = False
    """Whether `-c TEXT` is a script."""
    joined: bool = False
    """Whether the command's words are joined and given to a shell."""
    silent: str = ""
    """Letters of the options with which nothing runs."""


WRAPPERS: Final[dict[str, Wrapper]] = {
    "sudo": Wrapper(
        "ugpChrtTDRU", ("user", "group", "prompt", "chdir", "host", "role", "type", "chroot"), assigns=True
    ),
    "doas": Wrapper("uC"),
    "env": Wrapper("uCS", ("unset", "chdir", "split-string"), assigns=True),
    "command": Wrapper(silent="vV"),
    "exec": Wrapper("a"),
    "timeout": Wrapper("ks", ("kill-after", "signal"), operands=1),
    "nice": Wrapper("n", ("adjustment",)),
    "ionice": Wrapper("cnpPu", ("class", "classdata")),
    "stdbuf": Wrapper("ioe", ("input", "output", "error")),
    "time": Wrapper("of", ("output", "format")),
    "chrt": Wrapper("TPD", operands=1),
    "taskset": Wrapper(operands=1),
    "chroot": Wrapper("", ("userspec", "groups"), operands=1),
    "gosu": Wrapper(operands=1),
    "su-exec": Wrapper(operands=1),
    "xargs": Wrapper(
        "adEILnPs", ("arg-file", "delimiter", "max-args", "max-procs", "max-lines", "max-chars")
    ),
    "strace": Wrapper("eopsuaEPIOSUX"),
    "unshare": Wrapper("SGR"),
    "flock": Wrapper("wE", ("timeout",), operands=1, text=True),
    "su": Wrapper("gGsw", ("group", "shell"), operands=9, text=True),
    "runuser": Wrapper("ugGsw", ("user", "group", "shell"), text=True),
    "script": Wrapper("EoTIOBm", operands=9, text=True),
    "watch": Wrapper("n", ("interval",), joined=True),
    "parallel": Wrapper("jN", ("jobs",), joined=True),
    **dict.fromkeys(
        ["nohup", "setsid", "builtin", "busybox", "toybox", "coproc", "fakeroot", "unbuffer", "pkexec"],
        Wrapper(),
    ),
}


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """What a wrapper runs: words, and scripts."""

    words: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    directory: str | None = None
    replaced: str = ""
    """What `xargs -I` replaces."""


def unwrap(name: str, args: Sequence[str]) -> Unwrapped:
    """Take the command out of the arguments of a wrapper."""
    wrapper = WRAPPERS[name]
    given, at = _leading_options(wrapper, args)
    if any(letter in wrapper.silent for letter in given):
        return Unwrapped()
    scripts = [given["S"]] if name == "env" and "S" in given else []
    if wrapper.text:
        scripts += [after for before, after in itertools.pairwise(args) if before in ("-c", "--command")]
    while at < len(args) and wrapper.assigns and "=" in args[at].split("/")[0]:
        at += 1
    words = tuple(args[at + wrapper.operands :])
    if wrapper.joined:
        return Unwrapped(scripts=(" ".join(words),))
    return Unwrapped(words, tuple(scripts), given.get("C") if name == "env" else None, given.get("I", ""))


def _leading_options(wrapper: Wrapper, args: Sequence[str]) -> tuple[dict[str, str], int]:
    """Options before the first operand with their values, and where that operand is."""
    given: dict[str, str] = {}
    at = 0
    while at < len(args):
        arg = args[at].replace(UNSET, "")
        at += 1
        if arg == "--":
            break
        if not arg.startswith("-") or arg == "-":
            return given, at - 1
        following = args[at] if at < len(args) else ""
        if arg.startswith("--"):
            name, equals, value = arg[2:].partition("=")
            full = next((long for long in wrapper.long if long.startswith(name)), "")
            given[{"split-string": "S", "chdir": "C"}.get(full, full)] = value if equals else following
            at += bool(full and not equals)
        else:
            at += _cluster(wrapper, plain(arg[1:]), following, given)
    return given, at


def _cluster(wrapper: Wrapper, letters: str, following: str, given: dict[str, str]) -> bool:
    """Read `-abc`; say whether the next word was the value of its last letter."""
    for index, letter in enumerate(letters, 1):
        attached = letters[index:]
        if letter in wrapper.valued:
            given[letter] = attached or following
            return not attached
        given[letter] = ""
    return False
