"""What JavaScript and TypeScript code is warned about, and what it is not."""

import pytest

from aeolus_sandbox.tools.code_interpreter.analysis import analyse
from aeolus_sandbox.tools.code_interpreter.analysis.javascript_rules import RULES

BREAKS = {
    "process_start": [
        'new Deno.Command("ls").output()',
        "const { Command: C } = Deno; new C('ls')",
        'import { spawn as s } from "node:child_process"; s("ls")',
        'import * as cp from "child_process"; cp.spawn("ls")',
        'import cp from "node:child_process"; cp.execFileSync("ls")',
        'const { spawn } = require("child_process"); spawn("ls")',
        'const cp = await import("node:child_process"); cp.fork("a.js")',
        'globalThis["Deno"]["Com" + "mand"]("ls")',
        'new Worker("a.js")',
    ],
    "shell_command": [
        'import { exec } from "node:child_process"; exec("ls")',
        'require("child_process").execSync("ls")',
        'import { createRequire } from "node:module"; createRequire(import.meta.url)("child_process").exec(x)',
    ],
    "endless_process_loop": [
        'for (;;) { new Deno.Command("x").spawn(); }',
        'import { spawn } from "node:child_process"; while (true) spawn("x")',
        "do { new Worker(u) } while (1)",
    ],
    "computed_code": [
        "eval(x)",
        "(0, eval)(x)",
        "const e = eval; e(x)",
        "globalThis.eval(x)",
        "window['eval'](x)",
        "new Function(body)",
        "Function('a', body)",
        "setTimeout('f()', 10)",
        "eval(x as string)",
    ],
    "decoded_code": [
        "eval(atob('eA=='))",
        "const c = atob(s); eval(c)",
        "new Function(new TextDecoder().decode(b))",
        "eval(Buffer.from(s, 'base64').toString())",
    ],
    "foreign_function": ["Deno.dlopen('./a.so', {})", "const d = Deno.dlopen; d('a', {})"],
    "network": [
        "await fetch('http://example.com')",
        "new WebSocket(u)",
        "Deno.connect({ port: 1 })",
        "Deno.serve(f)",
    ],
    "metadata_address": ["fetch('http://169.254.169.254/')", "const u = `http://metadata.google.internal/`"],
    "delete_outside_workspace": [
        "Deno.remove('/', { recursive: true })",
        "Deno.removeSync('../../etc')",
        'import fs from "node:fs"; fs.rmSync("/etc", { recursive: true })',
        'import { unlink } from "node:fs/promises"; await unlink("/etc/hosts")',
        'import fs from "fs"; await fs.promises.rm("/e" + `tc`)',
    ],
    "write_outside_workspace": [
        "Deno.writeTextFile('/etc/x', '')",
        "Deno['writeTextFileSync']('/etc/x', '')",
        'require("fs").writeFileSync("/opt/x", "")',
        "Deno.copyFile('a', '/opt/a')",
        "const p = '/opt/a'; Deno.mkdir(p)",
    ],
    "system_secret": [
        "Deno.readTextFile('/etc/shadow')",
        "Deno.readTextFileSync('/proc/self/environ')",
        'require("fs").readFileSync("/etc/\\x73hadow")',
        "Deno.readTextFile(`/proc/1/mem`)",
    ],
    "ends_kernel": [
        "Deno.exit(4)",
        "const { exit: e } = Deno; e()",
        "process.exit()",
        'import process from "node:process"; process.exit(1)',
        "setTimeout(Deno.exit, 10)",
        "Deno.kill(Deno.pid, 'SIGKILL')",
        "Deno?.exit?.()",
        "Deno!.exit()",
        "(Deno as any).exit()",
    ],
    "kills_sandbox": ["Deno.kill(1)", "process.kill(-1, 9)", "Deno.kill(Deno.ppid)"],
    "huge_allocation": [
        "new ArrayBuffer(1e11)",
        "'a'.repeat(2 ** 33)",
        "new Uint8Array(8 * 1024 * 1024 * 1024)",
        "new Uint8Array(10_000_000_000)",
    ],
    "changes_builtins": [
        "Array.prototype.map = f",
        "Object.prototype['a'] = 1",
        "console.log = f",
        "Object.defineProperty(Array.prototype, 'map', d)",
        "x.__proto__.a = 1; x.__proto__ = y",
    ],
    "import_hook": ['import { register } from "node:module"; register("./hook.js")'],
    "environment_dump": [
        "console.log(Deno.env.toObject())",
        "console.log(process.env)",
        "JSON.stringify(process.env)",
    ],
    "class_walk": ["[].constructor.constructor('return 1')()", "(function () {}).constructor.constructor(x)"],
}
KEEPS = {
    "process_start": ["class Command {} new Command('ls')", "const Deno = {}; new Deno.Command('ls')"],
    "shell_command": ["/a/.exec(x)", "const exec = f; exec('ls')", "// exec('ls')"],
    "endless_process_loop": [
        "while (true) { if (x) break; new Worker(u) }",
        "for (let i = 0; i < 3; i++) new Worker(u)",
        "for (;;) { const f = () => new Worker(u); }",
    ],
    "computed_code": [
        "eval('1 + 1')",
        "setTimeout(() => f(), 10)",
        "x.eval(y)",
        "function eval2(x) {} eval2(y)",
    ],
    "decoded_code": ["console.log(atob(x))", "eval(x)"],
    "foreign_function": ["x.dlopen('a')", "'Deno.dlopen'"],
    "network": ["const fetch = f; fetch(x)", "cache.fetch(x)", "interface fetch { a: string }"],
    "metadata_address": ["'not 169.254.169.254 at all'", "'http://example.com/?u=169.254.169.254'"],
    "delete_outside_workspace": [
        "Deno.remove('a')",
        "Deno.remove('/workspace/a')",
        "Deno.remove(x)",
        "m.remove('/')",
    ],
    "write_outside_workspace": [
        "Deno.writeTextFile('a.txt', '')",
        "Deno.writeTextFile('/tmp/a', '/etc/x')",
        "Deno.copyFile('/etc/hosts', 'a')",
        "Deno.readTextFile('/etc/hosts')",
    ],
    "system_secret": ["Deno.readTextFile('/proc/meminfo')", "Deno.readTextFile('a.txt')", "'/etc/shadow'"],
    "ends_kernel": ["app.exit()", "Deno.kill(child.pid)", "function exit() {} exit()"],
    "kills_sandbox": ["Deno.kill(child.pid, 'SIGTERM')", "process.kill(1234)"],
    "huge_allocation": ["new ArrayBuffer(1024)", "1e11", "'a'.repeat(n)", "'a'.repeat(10)"],
    "changes_builtins": [
        "x.map = f",
        "A.prototype.f = g",
        "module.exports = x",
        "Array.prototype.map.call(x)",
    ],
    "import_hook": ["x.register('a')"],
    "environment_dump": ["console.log(process.env.HOME)", "Deno.env.get('HOME')", "process.env.A = '1'"],
    "class_walk": ["x.constructor.name", "new x.constructor(1)", "class A { constructor() {} }"],
}


def rules_of(code: str, language: str = "typescript") -> list[str]:
    return [found.rule for found in analyse(code, language)]


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in BREAKS.items() for code in codes])
def test_what_breaks_a_rule_is_found(rule: str, code: str) -> None:
    assert rule in rules_of(code)


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in KEEPS.items() for code in codes])
def test_what_only_looks_like_it_is_not_found(rule: str, code: str) -> None:
    assert rule not in rules_of(code)


def test_every_rule_has_examples_of_both_kinds() -> None:
    assert RULES.rules() == set(BREAKS) == set(KEEPS)


HONEST = """
import { assertEquals } from "./asserts.ts";
import data from "./data.json" with { type: "json" };
type Point = { x: number; y: number };
interface Shape<T> { area(): T }
enum Colour { Red, Green }
abstract class Base<T> implements Shape<T> {
  #size = 1;
  constructor(private readonly value: T) { super(); }
  abstract area(): T;
  get size() { return this.#size; }
  static async *each<T>(items: T[]): AsyncGenerator<T> { for (const item of items) yield item; }
}
const add = (a: number, b = 2, ...rest: number[]): number => a + b + rest.length;
const { a, b: [c, ...d], ...e } = data as any;
let text = `sum ${add(1, 2)} of ${a ?? b?.c}`;
text += "x";
for (const key in e) { if (key === "q") continue; console.log(key, e[key]!); }
while (true) { if (Math.random() > 0.5) break; }
const found = text.match(/[a-z]+/gi)?.map((word) => word.toUpperCase()) satisfies string[] | undefined;
await Deno.writeTextFile("out.txt", JSON.stringify({ found, [text]: 1, add }));
label: try { throw new Error("x"); } catch { } finally { }
const element = x < 3 ? <number>y : z;
export default add;
"""


@pytest.mark.parametrize("language", ["javascript", "typescript"])
def test_honest_code_has_no_findings(language: str) -> None:
    assert analyse(HONEST, language) == []


def test_jsx_is_read() -> None:
    assert rules_of("const x = <A b={Deno.exit()}>text, it's</A>;\nDeno.exit()") == [
        "ends_kernel",
        "ends_kernel",
    ]


@pytest.mark.parametrize(
    "code",
    [
        'new Deno.Command("sh", { args: ["-c", "rm -rf /"] })',
        'new Deno.Command("rm", { args: ["-rf", "/"] })',
        'const args = ["-rf", "/"]; new Deno.Command("rm", { args })',
        'import { execSync } from "node:child_process"; execSync(`rm -rf /`)',
        'import { spawn } from "node:child_process"; spawn("rm", ["-rf", "/"])',
        'import { spawn } from "node:child_process"; spawn("rm -rf", ["/"], { shell: true })',
        'Deno.run({ cmd: ["rm", "-rf", "/"] })',
    ],
)
def test_commands_go_to_the_command_check(code: str) -> None:
    assert "recursive_delete_of_root" in rules_of(code)


def test_places_are_in_characters() -> None:
    [found] = analyse("\n'\u00e9\u6f22\U0001f600'; Deno.exit()", "javascript")
    assert (found.line, found.column) == (2, 8)


def test_code_beside_a_mistake_is_read() -> None:
    assert rules_of("let = = 3;\nDeno.exit();") == ["ends_kernel"]
