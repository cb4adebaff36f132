"""What code of any language says it does, as plain data: the one form that rules are written against.

A language's module reads its syntax tree and makes `Fact`s. Names in them are full (`os.system`, whatever alias the
code uses), and values are what can be told from the text alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Constant: TypeAlias = str | bytes | int | float | bool | None
Place: TypeAlias = tuple[int, int]
"""Line from 1, and column from 0 in the unit of the language's parser."""

MAX_NAME: Final = 200
MAX_TEXT: Final = 8192
MAX_BITS: Final = 128
MAX_DIGITS: Final = 40
"""Of a literal number that is read."""
HUGE: Final = float("inf")
"""Stands for a number that is too large to be worked out."""


@dataclass(frozen=True, slots=True)
class Value:
    """What is known of an expression."""

    name: str = "?"
    """Its full name: `os.environ`, `open()` for what a call of `open` returns; `?` where there is none, and
    `?.x` for the member `x` of something unknown."""
    constant: Constant = None
    is_constant: bool = False
    items: tuple["Value", ...] = ()
    """Of a list."""
    options: Mapping[str, "Value"] = field(default_factory=dict)
    """Of an object or dictionary, where the keys are plain."""

    @property
    def text(self) -> str | None:
        """The text, if it is one."""
        if isinstance(self.constant, bytes):
            return self.constant.decode("utf-8", "replace")
        return self.constant if isinstance(self.constant, str) else None

    @property
    def number(self) -> float | None:
        """The number, if it is one."""
        if isinstance(self.constant, int | float) and not isinstance(self.constant, bool):
            return self.constant
        return None

    def member(self, name: str) -> "Value":
        """Return the member of this name."""
        full = f"{self.name}.{name}"
        return Value(full if len(full) <= MAX_NAME else f"?.{name[:MAX_NAME]}")

    def returned(self) -> "Value":
        """Return what a call of it gives."""
        return Value(f"{self.name}()" if len(self.name) < MAX_NAME else "?")


UNKNOWN: Final = Value()


def constant(value: Constant) -> Value:
    """Return the value of a literal."""
    return Value(constant=value, is_constant=True)


Kind = Literal["call", "import", "passed", "write", "text", "repeat"]


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that the code does.

    `call` of a function, `import` of a module, `passed`: something is handed to a function, `write`: something that
    is not a variable of the code's own is assigned to, `text`: a text stands in the code, `repeat`: a sequence is
    repeated so many times.
    """

    kind: Kind
    name: str
    at: Place
    arguments: tuple[Value, ...] = ()
    options: Mapping[str, Value] = field(default_factory=dict)
    receiver: Value = UNKNOWN
    """What a method is called of."""
    loop: Literal["none", "bounded", "endless"] = "none"
    """The loop around it; an endless one has no condition and no way out."""

    def argument(self, position: int, name: str = "") -> Value:
        """Return an argument by its position or name."""
        if name and name in self.options:
            return self.options[name]
        return self.arguments[position] if position < len(self.arguments) else UNKNOWN


class Names:
    """What the names of the code stand for, scope by scope. Order of the text, not of the run: this is advice."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, Value]] = [{}]

    def bind(self, name: str, value: Value) -> None:
        """Let a name stand for a value."""
        self._scopes[-1][name] = value

    def find(self, name: str) -> Value | None:
        """Return what a name stands for; None if the code did not say."""
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def enter(self) -> None:
        """Begin the scope of a function."""
        self._scopes.append({})

    def leave(self) -> None:
        """End it."""
        self._scopes.pop()


def joined(*parts: Value) -> Value:
    """Return texts put together, if all are known and it is not too long."""
    texts = [part.constant for part in parts]
    if all(isinstance(text, str) for text in texts):
        whole = "".join(str(text) for text in texts)
        return constant(whole) if len(whole) <= MAX_TEXT else UNKNOWN
    if all(isinstance(text, bytes) for text in texts):
        data = b"".join(text for text in texts if isinstance(text, bytes))
        return constant(data) if len(data) <= MAX_TEXT else UNKNOWN
    return UNKNOWN


def computed(operator: Literal["*", "**", "<<"], left: Value, right: Value) -> Value:
    """Return the result of arithmetic with literals; `HUGE` where it has more than `MAX_BITS` bits."""
    a, b = left.number, right.number
    if a is None or b is None:
        return UNKNOWN
    try:
        if operator == "*":
            return constant(a * b)
        if not (isinstance(a, int) and isinstance(b, int)):
            return constant(float(a) ** b) if operator == "**" and a >= 0 else UNKNOWN
        if b < 0:
            return UNKNOWN
        bits = abs(a).bit_length() * b if operator == "**" else a.bit_length() + b
        if bits > 2 * MAX_BITS and abs(a) > (1 if operator == "**" else 0):
            return constant(HUGE)
        return constant(a**b if operator == "**" else a << b)
    except (OverflowError, ZeroDivisionError):
        return constant(HUGE)
