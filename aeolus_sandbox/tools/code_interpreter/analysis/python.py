"""Python cells: each statement is parsed, read, and held against the rules."""

import ast
import re
import warnings
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Place
from aeolus_sandbox.tools.code_interpreter.analysis.python_cells import Statement, statements
from aeolus_sandbox.tools.code_interpreter.analysis.python_reader import PythonReader
from aeolus_sandbox.tools.code_interpreter.analysis.python_rules import RULES
from aeolus_sandbox.tools.code_interpreter.analysis.report import Report

MAX_STATEMENT_CHARACTERS: Final = 64 * 1024
"""The parser holds Python's lock while it reads a statement, and cannot be stopped: it needs up to 0.1 s for so much."""
_FILE_NAME: Final = "<code under analysis>"
_SILENCE: Final = ("ignore", None, Warning, re.compile(re.escape(_FILE_NAME)), 0)


def analyse_python(code: str, report: Report) -> None:
    """Analyse a cell of Python as IPython takes it."""
    reader = PythonReader(lambda fact: report.fact(fact, RULES), RULES)
    unparsed: Place | None = None
    for statement in statements(code):
        report.check_time()
        if statement.language == "shell":
            report.command(statement.text, statement.line)
        elif len(statement.text) > MAX_STATEMENT_CHARACTERS:
            report.add(
                rule.TOO_LONG,
                (statement.line, 1),
            )
        else:
            unparsed = _read(reader, statement, report) or unparsed
    if unparsed is not None:
        report.add(rule.NOT_PARSED, report.place(unparsed))


def _read(reader: PythonReader, statement: Statement, report: Report) -> Place | None:
    """Read one statement; return the place of a mistake in it."""
    try:
        reader.read(_parse(statement.text), statement.line)
    except (SyntaxError, ValueError):
        return statement.line, 0
    except (RecursionError, MemoryError):
        report.add(
            rule.TOO_DEEP,
            report.place((statement.line, 0)),
        )
    return None


def _parse(text: str) -> ast.Module:
    # The parser warns about doubtful escapes; that is for the kernel to do. Filters are the process's own, and
    # `catch_warnings` is not safe among threads, so that ours, which concerns our file name alone, stays.
    if _SILENCE not in warnings.filters:
        warnings.filterwarnings("ignore", module=re.escape(_FILE_NAME))
    return ast.parse(text, _FILE_NAME)
