"""The log tailer: lines a second through `next_chunk`, against `jq`, GoAccess and lnav; memory; and how soon a new line."""

import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from aeolus_sandbox import Grants, LogTailerInput, LogTailerTool, ReadLogs, SessionManager, Window
from benchmarks.child import output_of
from benchmarks.log_files import write_combined, write_json
from benchmarks.results import Benchmark, Figure, Series, at_least, at_most, number, versus
from benchmarks.rounds import Contender, Plan, Unavailable, interleaved
from benchmarks.tailer_run import Reading

ROUNDS = 3
TARGET_TIMES = 3.0
"""How many times the lines a second of `jq`."""
TARGET_MS = 50.0
FLAT_MIB = 8
_MIB: Final = 2**20
_TIMEOUT_S: Final = 400.0
"""For one gigabyte through `jq`, on a machine that is busy."""
_OTHERS: Final = ("goaccess", "lnav")
_NEW_LINES: Final = 100
"""They take about six seconds."""


async def measure(plan: Plan) -> Benchmark:
    """Measure reading whole files, and following one."""
    large_mib, small_mib = (16, 8) if plan.quick else (1024, 256) if plan.full else (128, 48)
    memory = {f"peak growth: {mib} MiB": Series(unit="MiB") for mib in (small_mib, large_mib)}
    async with _folder() as folder:
        plan.say("writing the files")
        large, small, access = folder / "large.json", folder / "small.json", folder / "access.log"
        await asyncio.to_thread(write_json, large, large_mib * _MIB)
        await asyncio.to_thread(write_json, small, small_mib * _MIB)
        await asyncio.to_thread(write_combined, access, large_mib * _MIB)
        contenders: dict[str, Contender | Unavailable] = {
            "tailer, JSON": _ours(large, "json", memory[f"peak growth: {large_mib} MiB"]),
            "jq -c, JSON": _installed(large, "jq", "-c", ".", str(large)),
            "tailer, less JSON": _ours(small, "json", memory[f"peak growth: {small_mib} MiB"]),
            "tailer, errors in JSON": _ours(large, "json", Series(unit="MiB"), "error"),
            "jq -c, errors in JSON": _installed(large, "jq", "-c", "select(.level >= 50)", str(large)),
            "tailer, combined": _ours(access, "combined", Series(unit="MiB")),
        }
        contenders |= _others(access)
        series = await interleaved(
            plan, contenders, rounds=plan.rounds(ROUNDS), unit="lines/s", warm_up=0, timeout_s=_TIMEOUT_S
        )
        plan.say("following a file")
        series["a new line, from its writing to next_chunk"] = await _follow(folder / "new.log")
    figures = _figures(series, memory, large_mib, small_mib)
    return Benchmark(name="tailer", series=series | memory, figures=figures)


def _figures(
    series: dict[str, Series], memory: dict[str, Series], large_mib: int, small_mib: int
) -> list[Figure]:
    def times(name: str, ours: str, other: str, target: float) -> Figure:
        mine, theirs = series[ours], series[other]
        return at_least(name, target, mine.ratio_to(theirs), unit=" times", detail=versus(mine, theirs))

    figures = [
        times(
            f"{large_mib} MiB of JSON through `next_chunk`, against `jq -c .`",
            "tailer, JSON",
            "jq -c, JSON",
            TARGET_TIMES,
        ),
        times(
            f"the errors in {large_mib} MiB of JSON, against `jq -c 'select(.level >= 50)'`",
            "tailer, errors in JSON",
            "jq -c, errors in JSON",
            TARGET_TIMES,
        ),
    ]
    name = f"{large_mib} MiB in the Combined Log Format, against `jq -c .` on JSON"
    figures.append(times(name, "tailer, combined", "jq -c, JSON", TARGET_TIMES))
    figures += [_beside(series["tailer, combined"], series[f"{other}, combined"], other) for other in _OTHERS]
    growth = [each.median for each in memory.values()]
    if None not in growth:
        more = round((growth[1] or 0) - (growth[0] or 0), 1)
        name = f"host memory: what reading {large_mib} MiB takes more than {small_mib} MiB"
        detail = f"peak growth {growth[1]:.1f} and {growth[0]:.1f} MiB"
        figures.append(at_most(name, FLAT_MIB, more, unit=" MiB", detail=detail))
    new = series["a new line, from its writing to next_chunk"]
    p95 = f"p95 {new.p95:.1f} ms" if new.p95 is not None else ""
    figures.append(
        at_most("a new line, from its writing to `next_chunk`", TARGET_MS, new.median, unit=" ms", detail=p95)
    )
    return figures


def _beside(mine: Series, theirs: Series, program: str) -> Figure:
    """Return how we compare with a program that makes something else of the lines."""
    value = mine.ratio_to(theirs)
    shown = (
        theirs.absence or "not measured"
        if value is None
        else f"{number(value)} times ({versus(mine, theirs)})"
    )
    name = f"the same, against what `{program}` reads"
    return Figure(name=name, target="-", measured=shown, value=value, met=None)


def _ours(file: Path, log_format: str, memory: Series, *level: str) -> Contender:
    async def once() -> float:
        output = await output_of(sys.executable, "-m", "benchmarks.tailer_run", str(file), log_format, *level)
        reading = Reading.model_validate_json(output)
        if reading.growth_bytes is not None:
            memory.samples.append(reading.growth_bytes / _MIB)
        return reading.lines_read / reading.seconds

    return once


def _command(file: Path, *argv: str) -> Contender:
    async def once() -> float:
        lines = await asyncio.to_thread(_count_lines, file)
        began = time.perf_counter()
        await output_of(*argv, keeps_output=False)
        return lines / (time.perf_counter() - began)

    return once


def _others(access: Path) -> dict[str, Contender | Unavailable]:
    """Return others that read access lines: they make other things of them, but have to read them too."""
    report = ("--log-format=COMBINED", "--no-global-config", "-o", "json", str(access))
    count = ("-n", "-N", "-c", ";SELECT count(*) FROM access_log", str(access))
    return {
        "goaccess, combined": _installed(access, "goaccess", *report),
        "lnav, combined": _installed(access, "lnav", *count),
    }


def _installed(file: Path, program: str, *words: str) -> Contender | Unavailable:
    if shutil.which(program) is None:
        return Unavailable(f"{program} is not installed")
    return _command(file, program, *words)


def _count_lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(block.count(b"\n") for block in iter(lambda: lines.read(4 * _MIB), b""))


async def _follow(file: Path) -> Series:
    """Write lines one after the other and measure how soon each is there."""
    series = Series(unit="ms")
    file.touch()
    grants = Grants.of(ReadLogs(roots=[str(file.parent)]))
    chance = random.Random(7)
    asked = LogTailerInput(path=str(file), follow=True, tail=0)
    async with (
        SessionManager(grants=grants) as manager,
        await manager.open(LogTailerTool(), asked, policy=Window(wait_for_reader=True)) as session,
    ):
        with file.open("a", encoding="ascii") as log:
            for count in range(_NEW_LINES):
                await asyncio.sleep(chance.uniform(0.01, 0.1))
                written = time.perf_counter()
                log.write(json.dumps({"level": "info", "n": count}) + "\n")
                log.flush()
                async with asyncio.timeout(10):
                    chunk = await session.next_chunk()
                assert chunk is not None, "the session has ended"
                assert chunk.fields["n"] == count, chunk
                series.samples.append((time.perf_counter() - written) * 1000)
    return series


@contextlib.asynccontextmanager
async def _folder() -> AsyncIterator[Path]:
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aeolus-bench-"))
    folder.chmod(0o755)  # the container's user reads it too
    try:
        yield folder
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)
