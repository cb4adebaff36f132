"""What Python code does: its syntax tree as facts."""

import ast
import posixpath
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from aeolus_sandbox.tools.code_interpreter.analysis.facts import (
    UNKNOWN,
    Fact,
    Names,
    Place,
    Value,
    computed,
    constant,
    joined,
)
from aeolus_sandbox.tools.code_interpreter.analysis.rules import RuleBook

_SAME: Final = {
    "posix": "os",
    "posixpath": "os.path",
    "_io": "io",
    "io.open": "open",
    "pathlib.PosixPath": "pathlib.Path",
}
_BUILTINS: Final = frozenset({"builtins", "__builtins__", "globals()", "vars()", "locals()"})
_IMPORTERS: Final = frozenset({"__import__", "importlib.import_module", "importlib.__import__"})
_OPERATORS: Final[dict[type[ast.operator], Literal["*", "**", "<<"]]] = {
    ast.Mult: "*",
    ast.Pow: "**",
    ast.LShift: "<<",
}
_PATHS: Final = frozenset(
    {"pathlib.Path", "pathlib.PurePath", "os.fspath", "os.path.abspath", "os.path.realpath", "str"}
)
_ENDLESS: Final = frozenset({"itertools.count()", "itertools.repeat()", "itertools.cycle()", "iter()"})


class PythonReader:
    """Reads statements one after another; what one binds, the next ones know."""

    def __init__(self, tell: Callable[[Fact], None], rules: RuleBook) -> None:
        self._tell = tell
        self._rules = rules
        self._names = Names()
        self._stars: list[str] = []
        self._loops: list[Literal["bounded", "endless"]] = []
        self._line = 0
        self._readers: Final[dict[type[ast.AST], Callable[[Any], Value | None]]] = {
            ast.AnnAssign: self._ann_assign,
            ast.Assign: self._assign,
            ast.AsyncFor: self._for,
            ast.AsyncFunctionDef: self._function_def,
            ast.AsyncWith: self._with,
            ast.Attribute: self._attribute,
            ast.AugAssign: self._aug_assign,
            ast.Await: self._await,
            ast.BinOp: self._bin_op,
            ast.Call: self._call,
            ast.ClassDef: self._class_def,
            ast.Constant: self._constant,
            ast.Delete: self._delete,
            ast.Dict: self._dict,
            ast.DictComp: self._comprehension,
            ast.For: self._for,
            ast.FormattedValue: self._formatted_value,
            ast.FunctionDef: self._function_def,
            ast.GeneratorExp: self._comprehension,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.JoinedStr: self._joined_str,
            ast.Lambda: self._function,
            ast.List: self._sequence,
            ast.ListComp: self._comprehension,
            ast.Name: self._name,
            ast.NamedExpr: self._named_expr,
            ast.Set: self._sequence,
            ast.SetComp: self._comprehension,
            ast.Starred: self._starred,
            ast.Subscript: self._subscript,
            ast.Tuple: self._sequence,
            ast.UnaryOp: self._unary_op,
            ast.While: self._while,
            ast.With: self._with,
        }

    def read(self, tree: ast.Module, line: int) -> None:
        """Tell what a statement does that begins at this line of the cell."""
        self._line = line - 1
        for statement in tree.body:
            self.visit(statement)

    def visit(self, node: ast.AST) -> Value:
        """Read a node and return what is known of its value."""
        reader = self._readers.get(type(node))
        if reader is not None:
            return reader(node) or UNKNOWN
        self._visit_all(ast.iter_child_nodes(node))
        return UNKNOWN

    def _at(self, node: ast.expr | ast.stmt) -> Place:
        return node.lineno + self._line, node.col_offset

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    # Names

    def _name(self, node: ast.Name) -> Value:
        found = self._names.find(node.id)
        if found is not None:
            return found
        starred = (f"{module}.{node.id}" for module in self._stars)
        return Value(next((name for name in starred if self._rules.knows(name)), node.id))

    def _attribute(self, node: ast.Attribute) -> Value:
        return _member(self.visit(node.value), node.attr)

    def _subscript(self, node: ast.Subscript) -> Value:
        value, key = self.visit(node.value), self.visit(node.slice)
        if key.text is not None and value.name.endswith(".__dict__"):
            return _member(Value(value.name.removesuffix(".__dict__")), key.text)
        if key.text is not None and value.name in _BUILTINS | {"sys.modules"}:
            return Value(key.text)
        return value.member("[]")

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._tell(Fact("import", alias.name, self._at(node)))
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self._names.bind(alias.asname or name, Value(_SAME.get(name, name)))

    def _import_from(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        self._tell(Fact("import", module, self._at(node)))
        for alias in node.names:
            if alias.name == "*":
                self._stars.append(module)
            else:
                self._names.bind(
                    alias.asname or alias.name, _member(Value(_SAME.get(module, module)), alias.name)
                )

    # Binding

    def _assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _ann_assign(self, node: ast.AnnAssign) -> None:
        self._bind(node.target, self.visit(node.value) if node.value else UNKNOWN)

    def _aug_assign(self, node: ast.AugAssign) -> None:
        left, right = self.visit(node.target), self.visit(node.value)
        self._bind(
            node.target, joined(left, right) if isinstance(node.op, ast.Add) and not self._loops else UNKNOWN
        )

    def _named_expr(self, node: ast.NamedExpr) -> Value:
        value = self.visit(node.value)
        self._bind(node.target, value)
        return value

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            self._bind(target, UNKNOWN)

    def _bind(self, target: ast.AST, value: Value) -> None:
        if isinstance(target, ast.Name):
            self._names.bind(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            known = value.items if len(value.items) == len(target.elts) else (UNKNOWN,) * len(target.elts)
            for element, item in zip(target.elts, known, strict=True):
                self._bind(element, item)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, UNKNOWN)
        elif isinstance(target, ast.Attribute):
            self._write(target, self.visit(target.value), target.attr)
        elif isinstance(target, ast.Subscript):
            self._write(target, self.visit(target.value), self.visit(target.slice).text or "[]")

    def _write(self, target: ast.expr, owner: Value, name: str) -> None:
        self._tell(Fact("write", owner.member(name).name, self._at(target)))

    # Scopes and loops

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        spec = node.args
        self._visit_all([*spec.defaults, *spec.kw_defaults])
        self._names.enter()
        loops, self._loops = self._loops, []
        for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg):
            if argument is not None:
                self._names.bind(argument.arg, UNKNOWN)
        self._visit_all(node.body if isinstance(node.body, list) else [node.body])
        self._loops = loops
        self._names.leave()

    def _function_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all(node.decorator_list)
        self._names.bind(node.name, UNKNOWN)
        self._function(node)

    def _class_def(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        self._names.enter()
        self._visit_all(node.body)
        self._names.leave()
        self._names.bind(node.name, UNKNOWN)

    def _while(self, node: ast.While) -> None:
        test = self.visit(node.test)
        self._loop(node, is_endless=test.is_constant and bool(test.constant))

    def _for(self, node: ast.For | ast.AsyncFor) -> None:
        values = self.visit(node.iter)
        self._bind(node.target, UNKNOWN)
        self._loop(node, is_endless=values.name in _ENDLESS)

    def _loop(self, node: ast.While | ast.For | ast.AsyncFor, *, is_endless: bool) -> None:
        has_end = is_endless and any(
            isinstance(inner, ast.Break | ast.Return | ast.Raise)
            for part in node.body
            for inner in ast.walk(part)
        )
        self._loops.append("endless" if is_endless and not has_end else "bounded")
        self._visit_all(node.body)
        self._loops.pop()
        self._visit_all(node.orelse)

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            value = self.visit(item.context_expr)
            if item.optional_vars is not None:
                self._bind(item.optional_vars, value)
        self._visit_all(node.body)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        self._names.enter()
        for generator in node.generators:
            self.visit(generator.iter)
            self._bind(generator.target, UNKNOWN)
            self._visit_all(generator.ifs)
        self._loops.append("bounded")
        self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self._loops.pop()
        self._names.leave()

    # Values

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, str):
            self._tell(Fact("text", "", self._at(node), (constant(node.value),)))
        if node.value is None or isinstance(node.value, str | bytes | int | float | bool):
            return constant(node.value)
        return UNKNOWN

    def _joined_str(self, node: ast.JoinedStr) -> Value:
        parts = [self.visit(part) for part in node.values]
        return joined(*parts)

    def _formatted_value(self, node: ast.FormattedValue) -> Value:
        value = self.visit(node.value)
        self._tell(Fact("passed", value.name, self._at(node)))
        return value if node.format_spec is None and node.conversion == -1 else UNKNOWN

    def _sequence(self, node: ast.List | ast.Tuple | ast.Set) -> Value:
        return Value(items=tuple([self.visit(item) for item in node.elts]))

    def _dict(self, node: ast.Dict) -> Value:
        keys = [self.visit(key) if key is not None else UNKNOWN for key in node.keys]
        values = [self.visit(value) for value in node.values]
        return Value(
            options={key.text: value for key, value in zip(keys, values, strict=True) if key.text is not None}
        )

    def _starred(self, node: ast.Starred) -> Value:
        self.visit(node.value)
        return UNKNOWN

    def _await(self, node: ast.Await) -> Value:
        return self.visit(node.value)

    def _unary_op(self, node: ast.UnaryOp) -> Value:
        value = self.visit(node.operand)
        if isinstance(node.op, ast.USub) and value.number is not None:
            return constant(-value.number)
        return UNKNOWN

    def _bin_op(self, node: ast.BinOp) -> Value:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, ast.Add):
            return joined(left, right)
        if (
            isinstance(node.op, ast.Div)
            and left.name == "pathlib.Path()"
            and left.text
            and right.text is not None
        ):
            return Value(left.name, posixpath.join(left.text, right.text), is_constant=True)
        operator = _OPERATORS.get(type(node.op))
        if operator is None:
            return UNKNOWN
        if operator == "*":
            self._repeat(node, left, right)
        return computed(operator, left, right)

    def _repeat(self, node: ast.BinOp, left: Value, right: Value) -> None:
        for sequence, count in ((left, right), (right, left)):
            if sequence.items or sequence.text:
                self._tell(Fact("repeat", "*", self._at(node), (count,)))

    # Calls

    def _call(self, node: ast.Call) -> Value:
        receiver = self.visit(node.func.value) if isinstance(node.func, ast.Attribute) else UNKNOWN
        function = (
            _member(receiver, node.func.attr)
            if isinstance(node.func, ast.Attribute)
            else self.visit(node.func)
        )
        arguments = tuple([self.visit(argument) for argument in node.args])
        options = {keyword.arg or "**": self.visit(keyword.value) for keyword in node.keywords}
        at = self._at(node)
        passed = [*arguments, *(value for name, value in options.items() if name != "env")]
        for value in passed:
            self._tell(Fact("passed", value.name, at))
        self._tell(
            Fact(
                "call",
                function.name,
                at,
                arguments,
                options,
                receiver,
                self._loops[-1] if self._loops else "none",
            )
        )
        return self._result(function, arguments, at)

    def _result(self, function: Value, arguments: tuple[Value, ...], at: Place) -> Value:
        name = function.name
        first = arguments[0] if arguments else UNKNOWN
        second = arguments[1].text if len(arguments) > 1 else None
        if name == "getattr" and second is not None:
            return _member(first, second)
        if name in ("setattr", "delattr") and second is not None:
            self._tell(Fact("write", first.member(second).name, at))
        if name in _IMPORTERS and first.text is not None:
            self._tell(Fact("import", first.text, at))
            return Value(_SAME.get(first.text, first.text))
        if name == "vars" and arguments:
            return first.member("__dict__")
        texts = [argument.text for argument in arguments]
        if name in _PATHS | {"os.path.join"} and texts and None not in texts:
            whole = posixpath.join(*(text for text in texts if text is not None))
            return Value("?" if name == "str" else "pathlib.Path()", whole, is_constant=True)
        if name in ("int", "float") and first.number is not None:
            return first
        return function.returned()


def _member(owner: Value, name: str) -> Value:
    if owner.name in _BUILTINS:
        return Value(name)
    found = owner.member(name)
    same = _SAME.get(found.name)
    return Value(same) if same else found
