"""What rules ask of a fact. Every condition says no where the text does not tell."""

from collections.abc import Callable
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import paths
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact, Value
from aeolus_sandbox.tools.code_interpreter.analysis.rules import Command, Condition

HUGE_COUNT: Final = 2**30
"""So many bytes or elements are more than a sandbox has memory for."""


def path(test: Callable[[str], bool], position: int = 0, name: str = "") -> Condition:
    """An argument is a path (or one of a list of paths) of which `test` holds."""

    def holds(fact: Fact) -> bool:
        value = fact.argument(position, name)
        return any(item.text is not None and test(item.text) for item in (value, *value.items))

    return holds


def receiver_path(test: Callable[[str], bool]) -> Condition:
    """The object whose method is called is a path of which `test` holds."""
    return lambda fact: fact.receiver.text is not None and test(fact.receiver.text)


def outside(position: int = 0, name: str = "") -> Condition:
    """An argument is a path outside the workspace."""
    return path(paths.is_outside, position, name)


def secret(position: int = 0, name: str = "") -> Condition:
    """An argument is a path that is none of the code's business."""
    return path(paths.is_secret, position, name)


def is_metadata(fact: Fact) -> bool:
    """The text is the address of a metadata service."""
    return paths.is_metadata_address(fact.arguments[0].text or "")


def has(position: int, name: str = "") -> Condition:
    """There is such an argument."""
    return lambda fact: position < len(fact.arguments) or name in fact.options


def computed(position: int = 0, name: str = "") -> Condition:
    """There is such an argument, and it is not written out in the code."""
    there = has(position, name)
    return lambda fact: there(fact) and not fact.argument(position, name).is_constant


def option_is(value: object, name: str, position: int = 99) -> Condition:
    """An argument has this very value."""

    def holds(fact: Fact) -> bool:
        found = fact.argument(position, name)
        return found.is_constant and found.constant == value

    return holds


def comes_from(*sources: str, position: int = 0, name: str = "") -> Condition:
    """An argument is what came out of a call whose name begins so."""
    return lambda fact: fact.argument(position, name).name.startswith(sources)


def number(*wanted: float, position: int = 0, name: str = "") -> Condition:
    """An argument is one of these numbers."""
    return lambda fact: fact.argument(position, name).number in wanted


def huge(*positions: int) -> Condition:
    """An argument (or one of a list) is a number as large as no memory is."""

    def holds(fact: Fact) -> bool:
        values = [fact.argument(position) for position in positions or (0,)]
        counts = [item.number for value in values for item in (value, *value.items)]
        return any(count is not None and count >= HUGE_COUNT for count in counts)

    return holds


def in_loop(fact: Fact) -> bool:
    """It is in a loop."""
    return fact.loop != "none"


def in_endless_loop(fact: Fact) -> bool:
    """It is in a loop without end."""
    return fact.loop == "endless"


def both(first: Condition, second: Condition) -> Condition:
    """Two conditions hold."""
    return lambda fact: first(fact) and second(fact)


def no(condition: Condition) -> Condition:
    """A condition does not hold."""
    return lambda fact: not condition(fact)


def text_at(position: int = 0, name: str = "") -> Callable[[Fact], Command | None]:
    """The command is the text in this argument."""
    return lambda fact: fact.argument(position, name).text


def words_of(value: Value) -> Command | None:
    """A list of known texts, as the words of a command."""
    words = [item.text for item in value.items]
    return [word for word in words if word is not None] if words and None not in words else None
