"""The matrix in the documents is of the promises and languages that the conformance suite has."""

import ast
from pathlib import Path

from tests.conformance import conftest
from tests.conformance.cells import CELLS, LANGUAGES

SUITE = Path(conftest.__file__).with_name("test_languages.py")


def _promises() -> set[str]:
    calls = [node for node in ast.walk(ast.parse(SUITE.read_text())) if isinstance(node, ast.Call)]
    words = [node.args[0] for node in calls if isinstance(node.func, ast.Name) and node.func.id == "promise"]
    return {word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str)}


def test_every_promise_and_language_is_in_the_matrix_and_none_is_broken() -> None:
    matrix = conftest.DOCUMENT.read_text().partition(conftest.BEGIN)[2].partition(conftest.END)[0]
    header, _, *rows = [line.strip("| ").split(" | ") for line in matrix.strip().splitlines()]
    assert tuple(header[1:]) == LANGUAGES
    assert {row[0] for row in rows} == _promises()
    assert all(cell in {"yes", "-"} for row in rows for cell in row[1:])


def test_every_language_has_cells() -> None:
    assert set(CELLS) == set(LANGUAGES)


def test_a_broken_promise_shows() -> None:
    table = conftest.table({"prints": {"python": "passed", "r": "failed"}})
    assert table.splitlines()[-1] == "| prints | yes | - | - | - | **no** | - |"
