"""Whatever the text is, the analysis of code answers soon, with findings whose places are in the text."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding, analyse
from aeolus_sandbox.tools.code_interpreter.analysis.analyser import MAX_CODE_CHARACTERS
from aeolus_sandbox.tools.code_interpreter.analysis.report import CPU_SECONDS, MAX_FINDINGS

LANGUAGES = ["bash", "javascript", "python", "r", "typescript", "wasm"]
CPU_LIMIT_S = 3 * CPU_SECONDS
"""One analysis: its meter, and what a parser does that cannot be stopped."""

FRAGMENTS = """
    os.system( exec( import_os from_os_import_system_as_s while_True: def_f(): lambda if else for(;;) const_{a}= <-
    [ ] { } ( ) ' " ''' ` ; => ${ eval( new_Deno.Command( import_{_}_from function( repeat{ %%bash %time_ ! :: $ #
    // /* */ (module (memory (import 99999999 ** << "/etc/shadow" @ , = : . r"( )" - 1e9 f'{
"""
PIECES = st.one_of(
    st.text(max_size=8),
    st.sampled_from([piece.replace("_", " ") for piece in FRAGMENTS.split()]),
    st.sampled_from(["\\", "\0", "\ud800", "\u00e9"]),
    st.sampled_from(["\n", "\n    ", "\r\n", "\r", "\x0c", "\u2028", " ", "\\\n"]),
)


def checked(code: str, language: str) -> list[CodeFinding]:
    """Analyse, and check what must hold of every answer."""
    begun = time.thread_time()
    found = analyse(code, language)
    assert time.thread_time() - begun < CPU_LIMIT_S
    assert len(found) <= MAX_FINDINGS
    lines = code.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for finding in found:
        assert 1 <= finding.line <= len(lines), finding
        assert 1 <= finding.column <= len(lines[finding.line - 1]) + 1, finding
        assert finding.message.endswith(".")
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=60, deadline=None)
@given(pieces=st.lists(PIECES, max_size=30))
def test_any_text_gives_findings_within_bounds_and_the_text(language: str, pieces: list[str]) -> None:
    checked("".join(pieces), language)


HOSTILE_CHARACTERS = 40_000
"""Enough for what grows with the square of it to hit the meter, and little enough for a suite that is run often."""
HOSTILE = {
    "open brackets": "(" * 100_000,
    "matched brackets": "[" * 50_000 + "]" * 50_000,
    "braces": "{" * 100_000,
    "minuses": "-" * 200_000 + "1",
    "nots": "not " * 50_000 + "x",
    "members": "a" + ".b" * 100_000,
    "calls": "f" + "()" * 60_000,
    "indexes": "a" + "[0]" * 60_000,
    "sum": "1" + "+1" * 100_000,
    "text sum": '"a"' + '+"a"' * 50_000,
    "power": "9" + "**9" * 50_000,
    "lambdas": "lambda: " * 20_000 + "1",
    "arrows": "a=>" * 50_000 + "1",
    "ternaries": "a?b:" * 40_000 + "c",
    "indentation": "".join(" " * depth + "if 1:\n" for depth in range(600)),
    "quotes": "'\"" * 100_000,
    "triple quotes": '"""' * 60_000,
    "backticks": "`${" * 60_000,
    "bars": "|" * 200_000,
    "angles": "<" * 200_000,
    "angles and names": "a<b>" * 50_000,
    "slashes": "/" * 200_000,
    "comments": "/*" * 100_000,
    "wasm comments": "(;" * 100_000,
    "list": "[" + "1," * 120_000 + "]",
    "one text": "x = '" + "a" * 250_000 + "'",
    "lines": "\n" * 250_000,
    "magics": "!ls\n" * 60_000,
    "joined magics": "!ls \\\n" * 30_000,
    "prompts": ">>> x\n" * 40_000,
    "calls to a shell": "os.system('ls')\n" * 15_000,
    "system calls": "system('ls')\n" * 15_000,
    "functions": "def f(a): f(a)\n" * 15_000,
    "R functions": "function(x) " * 20_000,
    "R arrows": "a <- " * 50_000,
    "NULs": "\0" * 200_000,
    "surrogates": "\ud800" * 200_000,
    "imports": "from os import *\n" * 15_000 + "a(b)\n" * 1000,
    "scopes": "".join(" " * depth + "def f():\n" for depth in range(95)) + " " * 95 + "a.b.c.d\n" * 500,
    "braces and semicolons": "{;" * 80_000,
    "JSX": "<a>" * 80_000,
    "huge number": "1" * 250_000,
    "huge hexadecimal": "0x" + "f" * 250_000,
    "strings": "'a' " * 60_000,
    "f-strings": "f'{" * 60_000,
    "escapes": "'" + "\\x41" * 60_000 + "'",
    "decorators": "@a\n" * 80_000,
    "carets": "2^" * 100_000 + "2",
}


@pytest.mark.parametrize("language", ["javascript", "python", "r", "wasm"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_costs_no_more_than_the_meter_allows(name: str, language: str) -> None:
    checked(HOSTILE[name][:HOSTILE_CHARACTERS], language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_too_long_code_is_said_to_be_so(language: str) -> None:
    [finding] = checked("x" * (MAX_CODE_CHARACTERS + 1), language)
    assert finding.severity != "info"
    assert finding.rule in {"too_long_to_analyse", "too_long_to_check"}


def test_too_deep_code_is_said_to_be_so() -> None:
    assert [found.rule for found in checked("x = " + "-" * 5000 + "1", "python")] == ["too_deeply_nested"]
    assert [found.rule for found in checked("x = " + "-" * 5000 + "1", "javascript")] == ["too_deeply_nested"]
    assert [found.rule for found in checked("x <- " + "(" * 5000 + "1", "r")] == ["too_deeply_nested"]


def test_what_is_too_deep_hides_nothing_before_and_after_it() -> None:
    code = "import os\nos._exit(1)\nx = " + "-" * 5000 + "1\nos._exit(2)\n"
    assert [(found.rule, found.line) for found in checked(code, "python")] == [
        ("ends_kernel", 2),
        ("too_deeply_nested", 3),
        ("ends_kernel", 4),
    ]


def test_many_findings_leave_the_worst() -> None:
    code = "import os, requests\n" + "requests.get(x)\n" * 200 + "os.kill(-1, 9)\n"
    found = checked(code, "python")
    assert len(found) == MAX_FINDINGS
    assert found[-1].rule == "kills_sandbox"


def test_unknown_language_gives_nothing() -> None:
    assert analyse("rm -rf /", "cobol") == []


def test_usual_code_of_the_longest_length_is_analysed() -> None:
    block = "def f{0}(a, b):\n    for i in range(10):\n        print(a[i] + b, 'text', i * 2)\n    return {{'a': a}}\n\n"
    code = "".join(block.format(number) for number in range(2200)) + "import os\nos._exit(1)\n"
    assert MAX_CODE_CHARACTERS * 0.8 < len(code) <= MAX_CODE_CHARACTERS
    assert [found.rule for found in checked(code, "python")] == ["ends_kernel"]
