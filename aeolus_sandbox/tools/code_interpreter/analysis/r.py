"""What R code does: its tree as facts."""

from collections.abc import Callable
from typing import Final, Literal

from aeolus_sandbox.tools.code_interpreter.analysis.facts import (
    HUGE,
    MAX_DIGITS,
    UNKNOWN,
    Fact,
    Names,
    Place,
    Value,
    computed,
    constant,
    joined,
)
from aeolus_sandbox.tools.code_interpreter.analysis.r_rules import RULES
from aeolus_sandbox.tools.code_interpreter.analysis.r_syntax import Kind, Node, parse
from aeolus_sandbox.tools.code_interpreter.analysis.report import Report

_ATTACHED: Final = frozenset({"base", "utils", "stats", "methods", "graphics", "grDevices", "datasets"})
"""Packages whose functions are found without their names."""
_BY_NAME: Final = frozenset({"get", "match.fun", "getFunction", "as.name", "getAnywhere"})


def analyse_r(code: str, report: Report) -> None:
    """Analyse a cell of R."""

    def tell(fact: Fact) -> None:
        for rule in RULES.broken_by(fact):
            report.add(rule, fact.at)
        command = RULES.command_of(fact)
        if command is not None:
            report.command(command, fact.at[0], at=fact.at)

    reader = RReader(tell)
    for expression in parse(code, report.check_time):
        report.check_time()
        reader.visit(expression)


class RReader:
    """Reads expressions in the order of the text."""

    def __init__(self, tell: Callable[[Fact], None]) -> None:
        self._tell = tell
        self._names = Names()
        self._loops: list[Literal["bounded", "endless"]] = []
        self._readers: Final[dict[Kind, Callable[[Node], Value]]] = {
            "assign": self._assign,
            "binary": self._binary,
            "block": self._block,
            "call": self._call,
            "function": self._function,
            "index": self._block,
            "loop": self._loop,
            "member": self._member,
            "name": lambda node: self._name(node.text),
            "number": lambda node: _number(node.text),
            "text": self._text,
        }

    def visit(self, node: Node) -> Value:
        """Read a node and return what is known of its value."""
        return self._readers[node.kind](node)

    def _text(self, node: Node) -> Value:
        text = constant(node.text)
        self._tell(Fact("text", "", node.at, (text,)))
        return text

    def _block(self, node: Node) -> Value:
        values = [self.visit(part) for part in node.parts]
        return values[-1] if values and node.kind == "block" else UNKNOWN

    def _name(self, name: str) -> Value:
        if name in ("TRUE", "T", "FALSE", "F"):
            return constant(name.startswith("T"))
        return self._names.find(name) or Value(name)

    def _member(self, node: Node) -> Value:
        owner = self.visit(node.parts[0])
        if node.names[0] in ("::", ":::") and owner.name in _ATTACHED:
            return Value(node.text)
        return owner.member(node.text)

    def _assign(self, node: Node) -> Value:
        target, source = node.parts
        value = self.visit(source)
        if target.kind in ("name", "text"):
            self._names.bind(target.text, value)
        else:
            self.visit(target)
        return value

    def _binary(self, node: Node) -> Value:
        values = [self.visit(part) for part in node.parts]
        if len(values) == 1:
            number = values[0].number
            return constant(-number) if node.text == "-" and number is not None else UNKNOWN
        operators: dict[str, Literal["*", "**"]] = {"*": "*", "^": "**"}
        operator = operators.get(node.text)
        return computed(operator, values[0], values[1]) if operator else UNKNOWN

    def _function(self, node: Node) -> Value:
        *defaults, body = node.parts
        self._names.enter()
        loops, self._loops = self._loops, []
        for name, default in zip(node.names, defaults, strict=True):
            if name:
                self.visit(default)
            self._names.bind(name or default.text, UNKNOWN)
        self.visit(body)
        self._loops = loops
        self._names.leave()
        return UNKNOWN

    def _loop(self, node: Node) -> Value:
        *conditions, body = node.parts
        value = self.visit(conditions[0]) if conditions else constant(value=True)
        is_endless = node.text != "for" and value.constant is True and not _has_exit(body)
        self._loops.append("endless" if is_endless else "bounded")
        self.visit(body)
        self._loops.pop()
        return UNKNOWN

    def _call(self, node: Node) -> Value:
        callee, *given = node.parts
        function = self._named(constant(callee.text)) if callee.kind == "text" else self.visit(callee)
        values = [self.visit(argument) for argument in given]
        arguments = tuple(value for value, name in zip(values, node.names, strict=True) if not name)
        options = {name: value for value, name in zip(values, node.names, strict=True) if name}
        for value in values:
            self._tell(Fact("passed", value.name, node.at))
        self._tell_call(function, node.at, arguments, options)
        return self._result(function, node.at, arguments, options)

    def _tell_call(
        self, function: Value, at: Place, arguments: tuple[Value, ...], options: dict[str, Value]
    ) -> None:
        loop = self._loops[-1] if self._loops else "none"
        self._tell(Fact("call", function.name, at, arguments, options, loop=loop))

    def _result(
        self, function: Value, at: Place, arguments: tuple[Value, ...], options: dict[str, Value]
    ) -> Value:
        name = function.name
        first = arguments[0] if arguments else UNKNOWN
        if name in _BY_NAME and first.text is not None:
            return self._named(first)
        if name == "do.call" and arguments:
            called = self._named(first) if first.text is not None else first
            listed = arguments[1].items if len(arguments) > 1 else ()
            self._tell_call(called, at, listed, {})
            return called.returned()
        if name == "paste0" or (name == "paste" and options.get("sep", UNKNOWN).text == ""):
            return joined(*arguments)
        if name == "file.path" and all(argument.text is not None for argument in arguments):
            return constant("/".join(argument.text or "" for argument in arguments))
        if name in ("c", "list"):
            return Value(items=arguments)
        if name in ("library", "require"):
            self._tell(Fact("import", first.text or first.name, at))
        return function.returned()

    def _named(self, name: Value) -> Value:
        return self._name(name.text or "?")


def _number(text: str) -> Value:
    digits = text.rstrip("Li")
    if len(digits) > MAX_DIGITS:
        return constant(HUGE)
    try:
        return constant(int(digits, 16) if digits[:2] in ("0x", "0X") else float(digits))
    except ValueError:
        return UNKNOWN


def _has_exit(body: Node) -> bool:
    waiting = [body]
    while waiting:
        node = waiting.pop()
        if node.kind == "name" and node.text in ("break", "return", "stop"):
            return True
        waiting.extend(node.parts)
    return False
