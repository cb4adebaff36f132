"""What breaks the rules, as data, and how facts are held against it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from aeolus_sandbox.tools.code_interpreter.analysis.catalogue import Rule
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact, Kind

Condition: TypeAlias = Callable[[Fact], bool]
Command: TypeAlias = str | Sequence[str]
_R = TypeVar("_R")


def always(_fact: Fact) -> bool:
    """Whatever the arguments are."""
    return True


@dataclass(frozen=True, slots=True)
class Sign:
    """What shows in a language that a rule is broken."""

    rule: Rule
    names: tuple[str, ...]
    """Full names of what it is about: `os.system`; `subprocess.*` is any member, `*.chmod` a member of anything."""
    when: Condition = always
    kinds: frozenset[Kind] = frozenset({"call"})


@dataclass(frozen=True, slots=True)
class ShellText:
    """Says which calls hand a text to a shell: it goes to the command check."""

    names: tuple[str, ...]
    command: Callable[[Fact], Command | None]


class RuleBook:
    """The signs of one language, found by name."""

    def __init__(self, signs: Iterable[Sign], shells: Iterable[ShellText] = ()) -> None:
        self._signs: Final = _by_name((name, sign) for sign in signs for name in sign.names)
        self._shells: Final = _by_name((name, shell) for shell in shells for name in shell.names)

    def broken_by(self, fact: Fact) -> Iterator[Rule]:
        """Find the rules that a fact breaks."""
        return (
            sign.rule
            for key in _keys(fact.name)
            for sign in self._signs.get(key, ())
            if fact.kind in sign.kinds and sign.when(fact)
        )

    def command_of(self, fact: Fact) -> Command | None:
        """Return what a call hands to a shell, if that can be told."""
        if fact.kind != "call":
            return None
        commands = (shell.command(fact) for key in _keys(fact.name) for shell in self._shells.get(key, ()))
        return next((command for command in commands if command is not None), None)

    def rules(self) -> set[str]:
        """Return the names of the rules that there are signs of."""
        return {sign.rule.name for signs in self._signs.values() for sign in signs}

    def knows(self, name: str) -> bool:
        """Whether there is a rule about this very name."""
        return name in self._signs or name in self._shells


def _by_name(pairs: Iterable[tuple[str, _R]]) -> dict[str, list[_R]]:
    found: dict[str, list[_R]] = defaultdict(list)
    for name, rule in pairs:
        found[name].append(rule)
    return dict(found)


def _keys(name: str) -> tuple[str, ...]:
    """The forms under which a rule may speak of a name."""
    parent, dot, last = name.rpartition(".")
    return (name, f"{parent}.*", f"*.{last}") if dot else (name,)
