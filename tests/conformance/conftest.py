"""Writes which promise each language keeps into docs/languages.md: `pytest tests/conformance --matrix`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.cells import LANGUAGES

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "languages.md"
BEGIN: Final = "<!-- matrix: made by `pytest tests/conformance --matrix` -->"
END: Final = "<!-- end of the matrix -->"
_PROPERTY: Final = "promise"
_MARKS: Final = {"passed": "yes", "failed": "**no**"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--matrix", action="store_true", help="Write what passed into docs/languages.md.")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "promise(words): what a test of the conformance suite promises")
    if config.getoption("--matrix") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Matrix(), "matrix")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    marker = item.get_closest_marker("promise")
    if marker is not None and isinstance(item, pytest.Function):
        item.user_properties.append((_PROPERTY, (marker.args[0], item.callspec.params["language"])))


class _Matrix:
    """Collects what passed, also from the processes of pytest-xdist."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            for name, value in report.user_properties:
                if name == _PROPERTY and isinstance(value, tuple | list):  # xdist makes a list of it
                    words, language = map(str, value)
                    self._kept.setdefault(words, {})[language] = report.outcome

    def pytest_sessionfinish(self) -> None:
        before, _, rest = DOCUMENT.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        DOCUMENT.write_text(f"{before}{BEGIN}\n{table(self._kept)}{END}{after}", "utf-8")


def table(kept: Mapping[str, Mapping[str, str]]) -> str:
    """Return the matrix as a Markdown table; a promise that makes no sense in a language is a dash."""
    lines = [f"| promise | {' | '.join(LANGUAGES)} |", f"|---|{'---|' * len(LANGUAGES)}"]
    for words, outcomes in sorted(kept.items()):
        cells = [_MARKS.get(outcomes.get(language, ""), "-") for language in LANGUAGES]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
