"""The rules of the command check: what is dangerous, as tables and small pure functions.

Arguments come as fields of `shell_expansion`: an unquoted `*` is a glob, a quoted one is shielded, and what nobody
can tell is one private character.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.tools.terminal.danger_paths import (
    CRITICAL_FILES,
    SHARED_DIRECTORIES,
    Severity,
    Verdict,
    is_file_of,
    is_raw_device,
    judge_write,
    protected,
    resolve,
    shown,
)
from aeolus_sandbox.tools.terminal.shell_expansion import UNKNOWN, UNSET
from aeolus_sandbox.tools.terminal.shell_tree import plain

DECODERS: Final = frozenset(
    [
        "base32",
        "base64",
        "basenc",
        "openssl",
        "rev",
        "tr",
        "uudecode",
        "xxd",
        "gunzip",
        "zcat",
        "gzip",
        "xzcat",
        "bzcat",
    ]
)
DOWNLOADERS: Final = frozenset(["curl", "wget", "fetch", "aria2c", "lynx", "http", "https", "axel"])
DEVICE_TOOLS: Final = frozenset(
    ["shred", "wipefs", "blkdiscard", "mkswap", "sfdisk", "sgdisk", "cfdisk", "parted", "badblocks"]
)
POWER_TOOLS: Final = frozenset(["shutdown", "reboot", "halt", "poweroff"])


# Options


@dataclass(frozen=True, slots=True)
class Options:
    """Options and operands of a command, told apart as GNU programs do."""

    short: frozenset[str]
    long: dict[str, str]
    operands: tuple[str, ...]

    def has(self, letters: str, *names: str) -> bool:
        """Whether an option is given, by one of its letters or by a (shortened) long name."""
        return any(letter in self.short for letter in letters) or any(
            name.startswith(given) for name in names for given in self.long
        )


def options(args: Sequence[str], valued: str = "") -> Options:
    """Split arguments; `valued` are the letters that take a value."""
    short: set[str] = set()
    long: dict[str, str] = {}
    operands: list[str] = []
    waiting = iter(args)
    for raw in waiting:
        arg = raw.replace(UNSET, "")
        if arg == "--":
            operands.extend(waiting)
        elif arg.startswith("--"):
            name, _, value = plain(arg[2:]).partition("=")
            long[name] = value
        elif arg.startswith("-") and len(arg) > 1:
            for at, letter in enumerate(arg[1:], 2):
                short.add(letter)
                if letter in valued:
                    if at == len(arg):
                        next(waiting, None)
                    break
        else:
            operands.append(raw)
    return Options(frozenset(short), long, tuple(operands))


# Commands: each rule gets the arguments and the working directory where it is known.

_NAMES: Final = {"root": "the root directory", "system": "a system directory", "home": "the home directory"}


def _rm(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    given = options(args)
    recursive = given.has("rR", "recursive")
    for path in given.operands:
        kind = protected(path, cwd)
        if kind and recursive:
            rule = f"recursive_delete_of_{'system_directory' if kind == 'system' else kind}"
            yield Verdict(rule, "danger", f"it deletes {_NAMES[kind]} with all that is in it ({shown(path)})")
        elif kind == "root" or is_file_of(path, cwd, CRITICAL_FILES):
            yield Verdict("system_file_delete", "danger", f"it deletes system files ({shown(path)})")
        elif recursive and UNSET in path and protected(path.replace(UNSET, "") or ".", cwd):
            why = "it deletes a protected directory if the variable in its path is empty"
            yield Verdict("recursive_delete_through_unset_variable", "suspicious", f"{why} (use ${{name:?}})")


def _change_all(what: str, args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    given = options(args)
    if not given.has("R", "recursive"):
        return
    for path in given.operands[0 if "reference" in given.long else 1 :]:
        found = resolve(path, cwd)
        shared = found is not None and "/" + "/".join(found) in SHARED_DIRECTORIES
        if protected(path, cwd) in ("root", "system") and not shared:
            yield Verdict(
                f"recursive_{what}_change", "danger", f"it changes the {what} of all under {shown(path)}"
            )


def _mv(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    *sources, target = options(args, "tS").operands or ("",)
    for path in sources:
        kind = protected(path, cwd)
        if kind in ("root", "system") or (kind == "home" and plain(target) == "/dev/null"):
            yield Verdict(
                "move_of_system_directory", "danger", f"it moves {_NAMES[kind]} away ({shown(path)})"
            )
    yield from judge_write(target, cwd)


def _copy(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    operands = options(args, "tSgmo").operands
    if len(operands) > 1:
        yield from judge_write(operands[-1], cwd)


def _dd(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    for arg in args:
        if arg.startswith("of="):
            yield from judge_write(arg[3:], cwd)


def _tee(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    given = options(args)
    for path in given.operands:
        yield from judge_write(path, cwd, append=given.has("a", "append"))


def _truncate(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    for path in options(args, "sr").operands:
        yield from judge_write(path, cwd)


def _sed(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    given = options(args, "efl")
    if given.has("i", "in-place"):
        for path in given.operands:
            yield from judge_write(path, cwd, append=True)


def _device_tool(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    for path in options(args).operands:
        if is_raw_device(path, cwd) or UNKNOWN in path:
            yield Verdict("raw_device_write", "danger", f"it writes to the raw device {shown(path)}")


def _mkfs(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    for path in options(args, "tLbNiIEOmU").operands:
        if path.startswith("/dev/") or not path.replace(UNSET, "").replace(UNKNOWN, ""):
            yield Verdict("filesystem_format", "danger", f"it formats {shown(path)}")


def _power(args: Sequence[str], _cwd: str | None) -> Iterator[Verdict]:
    if not options(args).has("cw", "help", "version", "wtmp-only"):
        yield Verdict("shutdown", "danger", "it shuts the machine down")


def _systemctl(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    if set(options(args).operands) & {"poweroff", "reboot", "halt", "kexec", "emergency", "rescue"}:
        yield from _power((), cwd)


def _init(args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    if {"0", "6"} & set(args):
        yield from _power((), cwd)


def _kill(args: Sequence[str], _cwd: str | None) -> Iterator[Verdict]:
    if "-1" in args[1:]:
        yield Verdict("kill_everything", "danger", "it kills every process")


Rule = Callable[[Sequence[str], str | None], Iterator[Verdict]]
RULES: Final[dict[str, Rule]] = {
    "rm": _rm,
    "chmod": lambda args, cwd: _change_all(
        "mode", ["=" if re.match("-[rwxXst]+$", a) else a for a in args], cwd
    ),
    "chown": lambda args, cwd: _change_all("owner", args, cwd),
    "chgrp": lambda args, cwd: _change_all("group", args, cwd),
    "mv": _mv,
    "cp": _copy,
    "install": _copy,
    "ln": _copy,
    "dd": _dd,
    "tee": _tee,
    "truncate": _truncate,
    "sed": _sed,
    "mke2fs": _mkfs,
    "systemctl": _systemctl,
    "init": _init,
    "telinit": _init,
    "kill": _kill,
    **dict.fromkeys(DEVICE_TOOLS, _device_tool),
    **dict.fromkeys(POWER_TOOLS, _power),
}


def judge(name: str, args: Sequence[str], cwd: str | None) -> Iterator[Verdict]:
    """What is wrong with a command; `name` has no directory any more."""
    rule = _mkfs if name.startswith("mkfs") else RULES.get(name)
    if rule is not None:
        yield from rule(args, cwd)


# find


@dataclass(frozen=True, slots=True)
class Find:
    """What a `find` command does."""

    paths: tuple[str, ...]
    narrowed: bool
    """Whether a test leaves most files alone."""
    deletes: bool
    runs: tuple[tuple[str, ...], ...]


_NARROWING: Final = frozenset(
    [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-newer",
        "-mtime",
        "-atime",
        "-ctime",
        "-mmin",
        "-amin",
        "-cmin",
        "-size",
        "-empty",
        "-user",
        "-group",
        "-uid",
        "-gid",
        "-perm",
        "-inum",
        "-samefile",
        "-links",
        "-nouser",
        "-nogroup",
    ]
)


def read_find(args: Sequence[str]) -> Find:
    """Take a `find` command apart."""
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at][1:2] in ("H", "L", "P", "D", "O"):
        at += 2 if args[at] == "-D" else 1
    first = at
    while at < len(args) and not re.match(r"[-(!]", plain(args[at])):
        at += 1
    tests = args[at:]
    runs: list[tuple[str, ...]] = []
    for start, test in enumerate(tests):
        if test in ("-exec", "-execdir", "-ok", "-okdir"):
            end = next((i for i in range(start, len(tests)) if tests[i] in (";", "+")), len(tests))
            runs.append(tuple(tests[start + 1 : end]))
            if len(runs) > 8:
                break
    own = tests[: next((i for i, test in enumerate(tests) if test.startswith(("-exec", "-ok"))), len(tests))]
    narrowed = "-o" not in own and any(
        test in _NARROWING and value.strip("*") and before not in ("!", "-not")
        for before, test, value in zip(("", *own), own, (*map(plain, own[1:]), "."), strict=False)
    )
    return Find(tuple(args[first:at]) or (".",), narrowed, "-delete" in tests, tuple(runs))


def judge_find(find: Find, cwd: str | None, *, removes: bool) -> Iterator[Verdict]:
    """What is wrong with a `find` that deletes, or whose `-exec` removes."""
    for path in find.paths if find.deletes or removes else ():
        kind = protected(path, cwd)
        if kind is not None and (kind == "root" or not find.narrowed):
            severity: Severity = "suspicious" if find.narrowed else "danger"
            yield Verdict(
                "find_deletes_protected", severity, f"it deletes what it finds below {_NAMES[kind]}"
            )
