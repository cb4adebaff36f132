"""What a command prints, as far as it can be told and matters to the command that reads it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aeolus_sandbox.tools.terminal import danger_rules as rules
from aeolus_sandbox.tools.terminal import shell_expansion as ex
from aeolus_sandbox.tools.terminal.shell_tree import decode_escapes, plain, shield


@dataclass(frozen=True, slots=True)
class Feed:
    """What goes through a pipe."""

    kind: Literal["text", "download", "decode", "paths"]
    text: str = ""


_MARKS: Final[dict[str, Literal["download", "decode"]]] = {ex.DOWNLOADED: "download", ex.DECODED: "decode"}


def read_from(path: str) -> Feed | None:
    """What reading a file gives; only a process substitution tells."""
    if path.startswith(ex.PROCESS):
        return Feed("text", path[1:])
    return next((Feed(kind) for mark, kind in _MARKS.items() if mark in path), None)


def printed(name: str, args: Sequence[str], stdin: Feed | None, cwd: str | None) -> Feed | None:
    """What a command prints, given what it reads."""
    if name == "echo":
        return _echo(args)
    if name == "printf" and args and not args[0].startswith("-v"):
        return _printf(args[1:] if args[0] == "--" else args)
    if name in ("which", "pwd"):
        text = cwd if name == "pwd" else args[-1] if args else None
        return Feed("text", text) if text else None
    if name in rules.DOWNLOADERS:
        return Feed("download")
    if name in ("cat", "tee"):
        given = [feed for feed in map(read_from, args) if feed is not None]
        return given[0] if given else stdin if name == "tee" or not args or args[0] == "-" else None
    if stdin is not None and stdin.kind == "download":
        return stdin
    if name in rules.DECODERS and _decodes(name, args):
        return Feed("decode")
    return stdin if stdin is not None and stdin.kind == "decode" else None


def _decodes(name: str, args: Sequence[str]) -> bool:
    if name in ("rev", "tr", "uudecode", "zcat", "gunzip", "xzcat", "bzcat"):
        return True
    return rules.options(args).has("dDr", "decode", "decompress", "revert") or "-d" in args


def _echo(args: Sequence[str]) -> Feed:
    words = list(args)
    escapes = False
    while words and re.fullmatch("-[neE]+", words[0]):
        escapes = escapes or "e" in words[0]
        words.pop(0)
    text = plain(" ".join(words))
    return Feed("text", shield(decode_escapes(text) if escapes else text) + "\n")


def _printf(args: Sequence[str]) -> Feed:
    values = iter(args[1:])

    def filled(match: re.Match[str]) -> str:
        return "%" if match[0] == "%%" else next(values, "")

    text = re.sub(r"%[-+ #0-9.]*[a-zA-Z]|%%", filled, plain(args[0]))
    return Feed("text", shield(decode_escapes(plain(text))))
