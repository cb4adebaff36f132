"""Import: what `import aeolus_sandbox` costs in a fresh interpreter, and what it must not load."""

import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.results import Benchmark, Figure, at_most
from benchmarks.rounds import Contender, Plan, interleaved

ROUNDS = 15
TARGET_MS = 300
HEAVY: Final = frozenset({
    "IPython", "aiodocker", "aiohttp", "anthropic", "docker", "ipykernel", "jupyter_client", "mcp", "msgspec",
    "pydantic", "requests", "rich", "tenacity", "tree_sitter", "typer", "zmq",
})  # fmt: skip
"""Libraries that somebody who only imports the package has not asked for."""
_STATEMENTS: Final = {
    "import aeolus_sandbox": "import aeolus_sandbox",
    "SessionManager": "from aeolus_sandbox import SessionManager",
    "terminal": "from aeolus_sandbox import SessionManager, TerminalInput, TerminalTool",
}
_PROGRAM: Final = """
import sys, time
began = time.perf_counter()
{statement}
took = time.perf_counter() - began
import json
print(json.dumps([took * 1000, sorted({{name.partition(".")[0] for name in sys.modules}})]))
"""


async def measure(plan: Plan) -> Benchmark:
    """Measure the bare import, and with it what opens sessions."""
    loaded: dict[str, set[str]] = {name: set() for name in _STATEMENTS}
    contenders = {name: _import(statement, loaded[name]) for name, statement in _STATEMENTS.items()}
    series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS))
    heavy = {name: sorted(modules & HEAVY) for name, modules in loaded.items()}
    return Benchmark(
        name="import", series=series, figures=list(_figures(series, heavy)), notes={"heavy": heavy}
    )


def _figures(series: dict[str, Any], heavy: dict[str, list[str]]) -> Iterator[Figure]:
    bare, manager = series["import aeolus_sandbox"], series["SessionManager"]
    detail = f"with `SessionManager`: {manager.median:.0f} ms" if manager.median is not None else ""
    yield at_most("`import aeolus_sandbox`", TARGET_MS, bare.median, unit=" ms", detail=detail)
    found = heavy["import aeolus_sandbox"]
    yield Figure(
        name="heavy libraries that `import aeolus_sandbox` loads",
        target="none",
        measured=", ".join(found) or "none",
        value=len(found),
        met=not found,
    )


def _import(statement: str, loaded: set[str]) -> Contender:
    async def once() -> float:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PROGRAM.format(statement=statement)), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        took, modules = json.loads(output)
        loaded.update(modules)
        return float(took)

    return once
