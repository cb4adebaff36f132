"""What JavaScript and TypeScript code does: its syntax tree as facts. The only door to their grammar.

Deno takes every cell for TypeScript, so that one grammar reads both languages. Where it finds a mistake, what it has
recovered is read all the same: its idea of the language and Deno's differ at the edges.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal

import tree_sitter
import tree_sitter_typescript

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
from aeolus_sandbox.tools.code_interpreter.analysis.javascript_rules import RULES
from aeolus_sandbox.tools.code_interpreter.analysis.report import Report
from aeolus_sandbox.tools.terminal.shell_syntax import Meter

_PLAIN: Final = tree_sitter.Language(tree_sitter_typescript.language_typescript())
_WITH_JSX: Final = tree_sitter.Language(tree_sitter_typescript.language_tsx())
_CPU_SECONDS: Final = 0.5
_GLOBAL: Final = frozenset({"globalThis", "window", "self", "global"})
_IMPORTERS: Final = frozenset({"require", "import", "module.createRequire()"})
_FUNCTIONS: Final = (
    *("function_declaration", "function_expression", "arrow_function", "method_definition"),
    *("generator_function", "generator_function_declaration"),
)
_WRAPPERS: Final = (
    *("parenthesized_expression", "await_expression", "as_expression", "satisfies_expression"),
    "non_null_expression",
)
_IGNORED: Final = (
    "comment",
    "type_annotation",
    "interface_declaration",
    "type_alias_declaration",
    "type_arguments",
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL
)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_OPERATORS: Final[dict[str, Literal["*", "**", "<<"]]] = {"*": "*", "**": "**", "<<": "<<"}


def analyse_javascript(code: str, report: Report) -> None:
    """Analyse a cell of JavaScript or TypeScript."""
    source = code.encode()
    meter = Meter(_CPU_SECONDS)
    root = meter.parse(source, _PLAIN).root_node
    if root.has_error:
        with_jsx = meter.parse(source, _WITH_JSX).root_node
        root = root if with_jsx.has_error else with_jsx
    JavaScriptReader(source, lambda fact: report.fact(fact, RULES), report.check_time).visit(root)


class JavaScriptReader:
    """Reads a tree once, in the order of its text."""

    def __init__(self, source: bytes, tell: Callable[[Fact], None], check_time: Callable[[], None]) -> None:
        self._source = source
        self._tell = tell
        self._check_time = check_time
        self._names = Names()
        self._loops: list[Literal["bounded", "endless"]] = []
        readers: dict[str, Callable[[tree_sitter.Node], Value]] = {
            "string": self._string,
            "template_string": self._string,
            "number": self._number,
            "true": lambda _node: constant(value=True),
            "identifier": self._identifier,
            "shorthand_property_identifier": self._identifier,
            "member_expression": self._member,
            "subscript_expression": self._member,
            "call_expression": self._call,
            "new_expression": self._call,
            "sequence_expression": self._last,
            "type_assertion": self._last,
            "binary_expression": self._binary,
            "unary_expression": self._unary,
            "variable_declarator": self._declaration,
            "assignment_expression": self._assignment,
            "augmented_assignment_expression": self._assignment,
            "object": self._object,
            "array": self._array,
            "import_statement": self._import,
            "for_statement": self._loop,
            "while_statement": self._loop,
            "do_statement": self._loop,
            "for_in_statement": self._loop,
        }
        readers |= dict.fromkeys(_FUNCTIONS, self._function)
        readers |= dict.fromkeys(_WRAPPERS, self._first)
        readers |= dict.fromkeys(_IGNORED, lambda _node: UNKNOWN)
        self._readers: Final = readers

    def visit(self, node: tree_sitter.Node | None) -> Value:
        """Read a node and return what is known of its value."""
        if node is None:
            return UNKNOWN
        reader = self._readers.get(node.type)
        if reader is not None:
            return reader(node)
        if node.child_count > 1:
            self._check_time()
        self._visit_all(node.named_children)
        return UNKNOWN

    def _text(self, node: tree_sitter.Node) -> str:
        # A node's own `text` reads through the callback that the tree was parsed from, which crashes the process.
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def _field_text(self, node: tree_sitter.Node, name: str) -> str:
        found = node.child_by_field_name(name)
        return self._text(found) if found is not None else ""

    def _visit_all(self, nodes: Iterable[tree_sitter.Node]) -> None:
        for node in nodes:
            self.visit(node)

    def _first(self, node: tree_sitter.Node) -> Value:
        values = [self.visit(child) for child in node.named_children if child.type != "comment"]
        return values[0] if values else UNKNOWN

    def _last(self, node: tree_sitter.Node) -> Value:
        values = [self.visit(child) for child in node.named_children]
        return values[-1] if values else UNKNOWN

    # Values

    def _number(self, node: tree_sitter.Node) -> Value:
        text = self._text(node).replace("_", "").removesuffix("n")
        try:
            return constant(int(text, 0) if len(text) <= MAX_DIGITS else HUGE)
        except ValueError:
            pass
        try:
            return constant(float(text))
        except ValueError:
            return UNKNOWN

    def _string(self, node: tree_sitter.Node) -> Value:
        parts: list[Value] = []
        for child in node.named_children:
            if child.type == "template_substitution":
                parts.append(self._first(child))
            else:
                parts.append(constant(_unescaped(self._text(child))))
        whole = joined(*parts)
        if whole.text:
            self._tell(Fact("text", "", _at(node), (whole,)))
        return whole

    def _identifier(self, node: tree_sitter.Node) -> Value:
        name = self._text(node)
        return self._names.find(name) or Value(name)

    def _member(self, node: tree_sitter.Node) -> Value:
        owner = self.visit(node.child_by_field_name("object"))
        if node.type == "member_expression":
            return _member(owner, self._field_text(node, "property"))
        return _member(owner, self.visit(node.child_by_field_name("index")).text or "[]")

    def _binary(self, node: tree_sitter.Node) -> Value:
        left, right = (self.visit(node.child_by_field_name(side)) for side in ("left", "right"))
        operator = self._field_text(node, "operator")
        if operator == "+":
            return joined(left, right)
        return computed(_OPERATORS[operator], left, right) if operator in _OPERATORS else UNKNOWN

    def _unary(self, node: tree_sitter.Node) -> Value:
        value = self.visit(node.child_by_field_name("argument"))
        is_negative = self._field_text(node, "operator") == "-" and value.number is not None
        return constant(-(value.number or 0)) if is_negative else UNKNOWN

    def _object(self, node: tree_sitter.Node) -> Value:
        options: dict[str, Value] = {}
        for child in node.named_children:
            if child.type == "pair":
                key = child.child_by_field_name("key")
                name = (
                    self._text(key)
                    if key is not None and key.type == "property_identifier"
                    else self.visit(key).text
                )
                options[name or "?"] = self.visit(child.child_by_field_name("value"))
            elif child.type == "shorthand_property_identifier":
                options[self._text(child)] = self.visit(child)
            else:
                self.visit(child)
        return Value(options=options)

    def _array(self, node: tree_sitter.Node) -> Value:
        return Value(items=tuple([self.visit(child) for child in node.named_children]))

    # Binding

    def _declaration(self, node: tree_sitter.Node) -> Value:
        value = self.visit(node.child_by_field_name("value"))
        self._bind(node.child_by_field_name("name"), value)
        return UNKNOWN

    def _assignment(self, node: tree_sitter.Node) -> Value:
        value = self.visit(node.child_by_field_name("right"))
        left = node.child_by_field_name("left")
        if left is not None and left.type in ("member_expression", "subscript_expression"):
            self._tell(Fact("write", self._member(left).name, _at(left)))
        else:
            self._bind(left, value if node.type == "assignment_expression" else UNKNOWN)
        return value

    def _bind(self, pattern: tree_sitter.Node | None, value: Value) -> None:
        if pattern is None:
            return
        if pattern.type in ("identifier", "shorthand_property_identifier_pattern"):
            name = self._text(pattern)
            is_own = pattern.type == "identifier"
            self._names.bind(name, value if is_own else _member(value, name))
        elif pattern.type == "pair_pattern":
            key = pattern.child_by_field_name("key")
            self._bind(pattern.child_by_field_name("value"), _member(value, self._text(key) if key else "?"))
        elif pattern.type in ("assignment_pattern", "object_assignment_pattern"):
            self._bind(pattern.child_by_field_name("left"), value)
            self.visit(pattern.child_by_field_name("right"))
        else:
            inner = value if pattern.type == "object_pattern" else UNKNOWN
            for child in pattern.named_children:
                self._bind(child, inner)

    def _import(self, node: tree_sitter.Node) -> Value:
        source = node.child_by_field_name("source")
        module = self._module(self.visit(source), _at(node))
        clause = next((child for child in node.named_children if child.type == "import_clause"), None)
        for child in clause.named_children if clause is not None else ():
            if child.type == "identifier":
                self._names.bind(self._text(child), module)
            elif child.type == "namespace_import":
                self._names.bind(self._text(child.named_children[0]) if child.named_children else "?", module)
            for one in child.named_children if child.type == "named_imports" else ():
                name = self._field_text(one, "name")
                alias = self._field_text(one, "alias") or name
                self._names.bind(alias, module if name == "default" else _member(module, name))
        return UNKNOWN

    def _module(self, source: Value, at: Place) -> Value:
        name = (source.text or "?").removeprefix("node:").removesuffix("/promises")
        self._tell(Fact("import", name, at))
        return Value(name)

    # Scopes and loops

    def _function(self, node: tree_sitter.Node) -> Value:
        name = node.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            self._names.bind(self._text(name), UNKNOWN)
        self._names.enter()
        loops, self._loops = self._loops, []
        self._bind(node.child_by_field_name("parameter"), UNKNOWN)
        parameters = node.child_by_field_name("parameters")
        for parameter in parameters.named_children if parameters is not None else ():
            self._bind(parameter.child_by_field_name("pattern"), UNKNOWN)
            self.visit(parameter.child_by_field_name("value"))
        self.visit(node.child_by_field_name("body"))
        self._loops = loops
        self._names.leave()
        return UNKNOWN

    def _loop(self, node: tree_sitter.Node) -> Value:
        body = node.child_by_field_name("body")
        test = node.child_by_field_name("condition")
        value = self.visit(test)
        if node.type == "for_in_statement":
            self.visit(node.child_by_field_name("right"))
            self._bind(node.child_by_field_name("left"), UNKNOWN)
        self.visit(node.child_by_field_name("initializer"))
        is_endless = (value.is_constant and bool(value.constant)) or (
            node.type == "for_statement" and (test is None or test.type == "empty_statement")
        )
        self._loops.append(
            "endless" if is_endless and body is not None and not _has_exit(body) else "bounded"
        )
        self.visit(body)
        self.visit(node.child_by_field_name("increment"))
        self._loops.pop()
        return UNKNOWN

    # Calls

    def _call(self, node: tree_sitter.Node) -> Value:
        callee = node.child_by_field_name("function") or node.child_by_field_name("constructor")
        receiver = self._receiver(callee)
        function = self._callee(callee, receiver)
        listed = node.child_by_field_name("arguments")
        if listed is not None and listed.type == "template_string":
            arguments: tuple[Value, ...] = (self.visit(listed),)
        else:
            given = [child for child in listed.named_children if child.type != "comment"] if listed else []
            arguments = tuple([self.visit(child) for child in given])
        at = _at(node)
        for value in arguments:
            self._tell(Fact("passed", value.name, at))
        loop = self._loops[-1] if self._loops else "none"
        self._tell(Fact("call", function.name, at, arguments, {}, receiver, loop))
        if function.name in _IMPORTERS and arguments and arguments[0].text is not None:
            return self._module(arguments[0], at)
        return function.returned()

    def _receiver(self, callee: tree_sitter.Node | None) -> Value:
        if callee is None or callee.type != "member_expression":
            return UNKNOWN
        return self.visit(callee.child_by_field_name("object"))

    def _callee(self, callee: tree_sitter.Node | None, receiver: Value) -> Value:
        if callee is None:
            return UNKNOWN
        if callee.type == "import":
            return Value("import")
        if callee.type == "member_expression":
            return _member(receiver, self._field_text(callee, "property"))
        return self.visit(callee)


def _member(owner: Value, name: str) -> Value:
    if owner.name in _GLOBAL:
        return Value(name)
    if (owner.name, name) in {
        ("fs", "promises"),
        ("process", "default"),
        ("fs", "default"),
        ("child_process", "default"),
    }:
        return owner
    return owner.member(name)


def _at(node: tree_sitter.Node) -> Place:
    return node.start_point[0] + 1, node.start_point[1]


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        code = found[1] or found[2] or found[3]
        if not code:
            return _LETTERS.get(found[4], found[4])
        value = int(code, 16)
        return chr(value) if value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"

    return _ESCAPE.sub(plain, text)


def _has_exit(body: tree_sitter.Node) -> bool:
    waiting = [body]
    while waiting:
        node = waiting.pop()
        if node.type in ("break_statement", "return_statement", "throw_statement"):
            return True
        waiting.extend(node.named_children)
    return False
