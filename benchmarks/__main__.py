"""`python -m benchmarks`: runs benchmarks, prints their tables, keeps every sample."""

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.status import Status

from aeolus_sandbox import __version__
from benchmarks import machine, report, table
from benchmarks.registry import ALL_WITHIN_S, BENCHMARKS, by_default, total_s
from benchmarks.results import Benchmark, Run
from benchmarks.rounds import Plan

RESULTS: Final = Path(__file__).with_name("results")
_LAST_LIMIT_S: Final = 1800.0
"""When a benchmark that does not end by itself is given up."""
_WIDTH: Final = 160
"""Of the tables where they go into a file."""
_console = Console(stderr=True)


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help=f"Which: {', '.join(BENCHMARKS)}; those of --list if none.")
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Two rounds of each: shows that they run, not how fast.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Without time budgets, and with the largest sizes.")
    ] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Say what there is, and run nothing.")] = False,
    update_readme: Annotated[
        bool, typer.Option("--update-readme", help="Write tables and charts into README.md.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Folder for the files.")] = RESULTS,
) -> None:
    """Measure what isolation costs on this machine; the exit code says only whether all could be measured."""
    if show_list:
        _list()
        return
    chosen = list(dict.fromkeys(names or by_default()))
    if unknown := set(chosen) - set(BENCHMARKS):
        raise typer.BadParameter(f"no such benchmark: {', '.join(sorted(unknown))}")
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    if update_readme and (quick or not set(chosen) >= set(by_default())):
        raise typer.BadParameter("--update-readme wants a run of all benchmarks that is not quick")
    run = asyncio.run(_run(chosen, quick=quick, full=full))
    table.show(run, Console(width=None if sys.stdout.isatty() else _WIDTH))
    for path in report.write(run, results):
        _console.print(f"written: {os.path.relpath(path)}", highlight=False, soft_wrap=True)
    if update_readme:
        report.update_readme(run)
    if any(benchmark.failed or benchmark.error for benchmark in run.benchmarks):
        raise typer.Exit(1)


def _list() -> None:
    for name, entry in BENCHMARKS.items():
        print(
            f"{name:12} {entry.budget_s:4.0f} s  {entry.says}{'' if entry.by_default else ' (by name only)'}"
        )
    print(f"{'by default':12} {total_s():4.0f} s  of at most {ALL_WITHIN_S:.0f} s")


async def _run(chosen: list[str], *, quick: bool, full: bool) -> Run:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    began = time.perf_counter()
    where = await machine.describe()
    with _console.status("") as status:
        benchmarks = [await _measure(name, status, quick=quick, full=full) for name in chosen]
    return Run(
        version=__version__,
        started=started,
        command=" ".join(("scripts/bench", *sys.argv[1:])),
        quick=quick,
        seconds=time.perf_counter() - began,
        machine=where.model_copy(update={"load_after": os.getloadavg()}),
        benchmarks=benchmarks,
    )


async def _measure(name: str, status: Status, *, quick: bool, full: bool) -> Benchmark:
    """Run one benchmark; what it fails with is part of the result, so that the others still run."""
    entry = BENCHMARKS[name]
    began = time.monotonic()
    plan = Plan(
        quick=quick,
        full=full,
        say=_sayer(status, name),
        ends_at=math.inf if full else began + entry.budget_s,
    )
    try:
        async with asyncio.timeout(_LAST_LIMIT_S):
            benchmark = await entry.measure(plan)
    except Exception as error:  # noqa: BLE001 - told in the table, and by the exit code
        benchmark = Benchmark(name=name, series={}, figures=[], error=repr(error))
    return benchmark.model_copy(update={"seconds": time.monotonic() - began, "budget_s": entry.budget_s})


def _sayer(status: Status, name: str) -> Callable[[str], None]:
    return lambda words: status.update(f"{name}: {words}")


if __name__ == "__main__":
    typer.run(main)
