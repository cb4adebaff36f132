"""What JavaScript and TypeScript code is warned about."""

from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis.conditions import (
    comes_from,
    computed,
    huge,
    in_endless_loop,
    is_metadata,
    number,
    outside,
    secret,
    text_at,
    words_of,
)
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact, Value
from aeolus_sandbox.tools.code_interpreter.analysis.rules import Command, RuleBook, ShellText, Sign


def _both(module: str, *names: str) -> tuple[str, ...]:
    """The functions of a module, and those that wait for their end."""
    return tuple(f"{module}.{name}{suffix}" for name in names for suffix in ("", "Sync"))


_SHELLS: Final = _both("child_process", "exec")
_SPAWNERS: Final = _both("child_process", "spawn", "execFile")
_STARTERS: Final = ("Deno.Command", "Deno.run", "child_process.fork", "Worker", *_SPAWNERS)
_NOT_WAITED_FOR: Final = (
    *("Deno.Command().spawn", "Deno.run", "Worker"),
    *("child_process.spawn", "child_process.exec", "child_process.fork", "child_process.execFile"),
)
_EXECUTE: Final = ("eval", "vm.runInThisContext", "vm.runInNewContext", "vm.Script")
_TIMERS: Final = ("setTimeout", "setInterval")
_DECODERS: Final = ("atob()", "Buffer.from()", "TextDecoder().decode()", "decodeURIComponent()", "unescape()")
_NETWORK: Final = (
    *(
        "fetch",
        "WebSocket",
        "XMLHttpRequest",
        "EventSource",
        "Deno.connect",
        "Deno.connectTls",
        "Deno.listen",
        "Deno.serve",
    ),
    *("Deno.resolveDns", "Deno.listenDatagram", "http.request", "http.get", "https.request", "https.get"),
    *("net.connect", "net.createConnection", "net.Socket", "dgram.createSocket", "tls.connect", "dns.lookup"),
)
_READERS: Final = (
    *_both("Deno", "readTextFile", "readFile", "readDir", "readLink", "open"),
    *_both("fs", "readFile", "readdir", "readlink", "open", "createReadStream"),
)
_WRITERS: Final = (
    *_both("Deno", "writeTextFile", "writeFile", "mkdir", "create", "chmod", "chown", "truncate"),
    *_both("fs", "writeFile", "appendFile", "mkdir", "chmod", "chown", "truncate", "createWriteStream"),
)
_COPIERS: Final = (
    *_both("Deno", "copyFile", "rename", "symlink", "link"),
    *_both("fs", "copyFile", "rename", "symlink", "link", "cp"),
)
_DELETERS: Final = (*_both("Deno", "remove"), *_both("fs", "rm", "rmdir", "unlink"))
_KILLERS: Final = ("Deno.kill", "process.kill")
_ALLOCATORS: Final = (
    *(
        "ArrayBuffer",
        "SharedArrayBuffer",
        "Buffer.alloc",
        "Buffer.allocUnsafe",
        "*.repeat",
        "*.padEnd",
        "*.padStart",
    ),
    *(
        f"{kind}Array"
        for kind in ("Int8", "Uint8", "Int16", "Uint16", "Int32", "Uint32", "Float32", "Float64")
    ),
)
_BUILTINS: Final = (
    *("Object", "Array", "String", "Number", "Function", "Promise", "Map", "Set", "RegExp", "Date"),
    *("Error", "Boolean", "Symbol"),
)
_SHARED: Final = (
    *(f"{name}.prototype.*" for name in _BUILTINS),
    *("console.*", "JSON.*", "Math.*", "Reflect.*", "Deno.*", "Object.*", "Array.*", "*.__proto__"),
)


def _changes_prototype(fact: Fact) -> bool:
    return fact.argument(0).name in {f"{name}.prototype" for name in _BUILTINS}


def _escapes_by_constructor(fact: Fact) -> bool:
    return fact.name.endswith(".constructor.constructor")


def _any_computed(fact: Fact) -> bool:
    return any(not argument.is_constant for argument in fact.arguments)


def _text_to_timer(fact: Fact) -> bool:
    return fact.argument(0).text is not None


def _words(fact: Fact) -> Command | None:
    """The words of `Deno.Command(path, {args})`, `spawn(path, args)` or `Deno.run({cmd})`."""
    program, second = fact.argument(0), fact.argument(1)
    if "cmd" in program.options:
        return words_of(program.options["cmd"])
    args = second.options.get("args", second)
    shell = (fact.argument(2) if second.items else second).options.get("shell")
    words = words_of(Value(items=(program, *args.items)))
    if words is not None and shell is not None and shell.constant is True:
        return " ".join(words)
    return words


RULES: Final = RuleBook(
    (
        Sign(rule.PROCESS_START, _STARTERS),
        Sign(rule.SHELL_COMMAND, _SHELLS),
        Sign(rule.ENDLESS_PROCESS_LOOP, _NOT_WAITED_FOR, in_endless_loop),
        Sign(rule.COMPUTED_CODE, _EXECUTE, computed()),
        Sign(rule.COMPUTED_CODE, ("Function",), _any_computed),
        Sign(rule.COMPUTED_CODE, _TIMERS, _text_to_timer),
        Sign(rule.DECODED_CODE, ("Function", *_EXECUTE, *_TIMERS), comes_from(*_DECODERS)),
        Sign(rule.DECODED_CODE, _SHELLS, comes_from(*_DECODERS)),
        Sign(
            rule.FOREIGN_FUNCTION,
            ("Deno.dlopen", "process.dlopen", "Deno.UnsafeFnPointer", "Deno.UnsafePointerView"),
        ),
        Sign(rule.NETWORK, _NETWORK),
        Sign(rule.METADATA_ADDRESS, ("",), is_metadata, frozenset({"text"})),
        Sign(rule.DELETE_OUTSIDE_WORKSPACE, _DELETERS, outside()),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _WRITERS, outside()),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _COPIERS, outside(1)),
        Sign(rule.SYSTEM_SECRET, _READERS, secret()),
        Sign(rule.ENDS_KERNEL, ("Deno.exit", "process.exit", "process.abort", "process.reallyExit")),
        Sign(rule.ENDS_KERNEL, ("Deno.exit", "process.exit"), kinds=frozenset({"passed"})),
        Sign(rule.ENDS_KERNEL, _KILLERS, comes_from("Deno.pid", "process.pid")),
        Sign(rule.KILLS_SANDBOX, _KILLERS, number(-1, 0, 1)),
        Sign(rule.KILLS_SANDBOX, _KILLERS, comes_from("Deno.ppid", "process.ppid")),
        Sign(rule.HUGE_ALLOCATION, _ALLOCATORS, huge(0)),
        Sign(rule.CHANGES_BUILTINS, _SHARED, kinds=frozenset({"write"})),
        Sign(
            rule.CHANGES_BUILTINS,
            ("Object.defineProperty", "Object.assign", "Reflect.defineProperty", "Object.setPrototypeOf"),
            _changes_prototype,
        ),
        Sign(rule.IMPORT_HOOK, ("module.register", "module.registerHooks", "module._load")),
        Sign(rule.ENVIRONMENT_DUMP, ("Deno.env.toObject",)),
        Sign(rule.ENVIRONMENT_DUMP, ("process.env", "Deno.env"), kinds=frozenset({"passed"})),
        Sign(rule.CLASS_WALK, ("*.constructor",), _escapes_by_constructor),
    ),
    (ShellText(_SHELLS, text_at()), ShellText(("Deno.Command", "Deno.run", *_SPAWNERS), _words)),
)
