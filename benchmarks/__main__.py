"""`python -m benchmarks`: runs benchmarks, prints their table, keeps every sample as JSON."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.status import Status

from aeolus_sandbox import __version__
from benchmarks import cell, cold, events, imports, languages, machine, parked, table, tailer, throughput
from benchmarks.results import Benchmark, Run
from benchmarks.rounds import Plan

BENCHMARKS: Final[dict[str, Callable[[Plan], Awaitable[Benchmark]]]] = {
    "cold": cold.measure,
    "parked": parked.measure,
    "cell": cell.measure,
    "languages": languages.measure,
    "throughput": throughput.measure,
    "tailer": tailer.measure,
    "events": events.measure,
    "import": imports.measure,
}
RESULTS: Final = Path(__file__).with_name("results")
_console = Console(stderr=True)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(BENCHMARKS)}; all if none.")
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option(help="Two rounds of each: shows that they run, not how fast.")
    ] = False,
    update_readme: Annotated[bool, typer.Option(help="Write the table into README.md.")] = False,
    results: Annotated[Path, typer.Option(help="Folder for the JSON file.")] = RESULTS,
) -> None:
    """Measure what isolation costs on this machine; the exit code says only whether all could be measured."""
    chosen = names or list(BENCHMARKS)
    if unknown := set(chosen) - set(BENCHMARKS):
        raise typer.BadParameter(f"no such benchmark: {', '.join(sorted(unknown))}")
    if update_readme and (quick or set(chosen) != set(BENCHMARKS)):
        raise typer.BadParameter("--update-readme wants a full run of all benchmarks")
    run = asyncio.run(_run(chosen, quick=quick))
    results.mkdir(parents=True, exist_ok=True)
    path = results / f"{run.started.replace(':', '')}.json"
    path.write_text(run.model_dump_json(indent=1), "utf-8")
    table.show(run, Console())
    _console.print(f"every sample: {os.path.relpath(path)}", highlight=False)
    if update_readme:
        table.update_readme(run)
    if any(benchmark.failed for benchmark in run.benchmarks):
        raise typer.Exit(1)


async def _run(chosen: list[str], *, quick: bool) -> Run:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    began = time.perf_counter()
    where = await machine.describe()
    with _console.status("") as status:
        benchmarks = [await BENCHMARKS[name](Plan(quick=quick, say=_sayer(status, name))) for name in chosen]
    return Run(
        version=__version__,
        started=started,
        command=" ".join(("scripts/bench", *sys.argv[1:])),
        quick=quick,
        seconds=time.perf_counter() - began,
        machine=where.model_copy(update={"load_after": os.getloadavg()}),
        benchmarks=benchmarks,
    )


def _sayer(status: Status, name: str) -> Callable[[str], None]:
    return lambda words: status.update(f"{name}: {words}")


if __name__ == "__main__":
    typer.run(main)
