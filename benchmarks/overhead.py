"""Overhead: the same work bare and in every kind of container, and how many times longer it takes there."""

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import aiodocker

from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import resolve_image
from aeolus_sandbox.hardening import GVISOR_RUNTIME
from benchmarks import machine
from benchmarks.bare import config_of, started
from benchmarks.bare_host import bare_host
from benchmarks.results import Benchmark, Grid, Series, number
from benchmarks.rounds import PartsContender, Plan, Unavailable, interleaved_parts

ROUNDS = 9
WORK_S: Final = 0.1
"""How long each kind of work is done in each round."""
START: Final = "start, to a Python program's first line"
KINDS: Final = (
    "CPU, pure Python",
    "CPU, numpy: 256 x 256 matrices multiplied",
    "memory: 32 MiB copied",
    "system call: getpid",
    "system call: stat",
    "system calls: open, close",
    "fork and exec",
    "file I/O: tmpfs, write and read a MiB",
    "file I/O: image, read a MiB",
    START,
)
BARE: Final = "bare"
_WORK: Final = Path(__file__).with_name("work_inside.py").read_text("utf-8")
_NAMES: Final = {GVISOR_RUNTIME: "gVisor"}


async def measure(plan: Plan) -> Benchmark:
    """Measure all kinds of work in all kinds of containers that the engine has."""
    processor = machine.processors()[-1]  # the last: interrupts mostly go to the first
    argv = ("python3", "-c", _WORK, str(WORK_S))
    image = resolve_image("python")
    async with AsyncExitStack() as stack:
        docker = await stack.enter_async_context(aiodocker.Docker())
        plan.say("unpacking the image, for what runs bare")
        bare = await stack.enter_async_context(bare_host(image, processor=processor))
        contenders: dict[str, PartsContender | Unavailable] = {
            BARE: bare if isinstance(bare, Unavailable) else _bare((*bare, *argv)),
            "runc, Docker's defaults": _inside(docker, _default_config(argv, "runc", processor)),
        }
        for runtime in await _runtimes():
            name = f"{_NAMES.get(runtime, runtime)}, hardened"
            contenders[name] = _inside(docker, _hardened_config(argv, runtime, processor))
        if not any(name.startswith("gVisor") for name in contenders):
            contenders["gVisor, hardened"] = Unavailable(f"the engine has no runtime {GVISOR_RUNTIME}")
        units = dict.fromkeys(KINDS, "µs") | {START: "ms"}
        measured = await interleaved_parts(plan, contenders, units=units, rounds=plan.rounds(ROUNDS))
    series = {f"{kind}: {name}": measured[name][kind] for kind in KINDS for name in contenders}
    return Benchmark(name="overhead", series=series, figures=[], grids=[ratios(measured)])


def ratios(measured: Mapping[str, Mapping[str, Series]]) -> Grid:
    """Return how many times longer each contender takes for each kind of work than bare."""
    columns = [name for name in measured if name != BARE]
    absent = {name: next(iter(series.values())).unavailable for name, series in measured.items()}
    rows: dict[str, list[float | None]] = {}
    for kind, bare in measured[BARE].items():
        took = bare.absence or f"bare {number(bare.median)} {bare.unit}"
        rows[f"{kind} ({took})"] = [measured[name][kind].ratio_to(bare) for name in columns]
    return Grid(
        title="What isolation costs, per kind of work",
        unit="times as long as bare, on the same processor",
        columns=columns,
        rows=rows,
        absent={name: absent[name] or "" for name in columns if absent[name]},
        even=1.0,
    )


async def _runtimes() -> list[str]:
    async with DockerEngine() as engine:
        found = machine.runtimes(await engine.info())
    return sorted(found, key=lambda name: (name != "runc", name == GVISOR_RUNTIME, name))


def _hardened_config(argv: tuple[str, ...], runtime: str, processor: int) -> dict[str, Any]:
    config = config_of("python", argv, tty=False)
    config["HostConfig"] |= {"Runtime": runtime, "CpusetCpus": str(processor)}
    return config


def _default_config(argv: tuple[str, ...], runtime: str, processor: int) -> dict[str, Any]:
    """Return what `docker run --network none --tmpfs /tmp` would ask for: no limit, no barrier beyond Docker's own."""
    hardened = config_of("python", argv, tty=False)
    asked = (
        "Image",
        "Cmd",
        "Labels",
        "OpenStdin",
        "StdinOnce",
        "AttachStdin",
        "AttachStdout",
        "AttachStderr",
    )
    host = {
        "NetworkMode": "none",
        "Tmpfs": {"/tmp": ""},
        "Runtime": runtime,
        "CpusetCpus": str(processor),
    }
    return {name: hardened[name] for name in asked} | {"HostConfig": host}


def _inside(docker: aiodocker.Docker, config: Mapping[str, Any]) -> PartsContender:
    async def once() -> Mapping[str, float]:
        began = time.perf_counter()
        start, said = 0.0, b""
        async with started(docker, config) as stream:
            while (message := await stream.read_out()) is not None:
                start = start or time.perf_counter() - began
                said += message.data
        return _sample(start, said)

    return once


def _bare(argv: tuple[str, ...]) -> PartsContender:
    async def once() -> Mapping[str, float]:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        try:
            said = await process.stdout.readline()
            start = time.perf_counter() - began
            return _sample(start, said + await process.stdout.read())
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    return once


def _sample(start_s: float, said: bytes) -> dict[str, float]:
    first, _, rest = said.partition(b"\n")
    assert first == b"started", said
    took: dict[str, float] = {kind: seconds * 1e6 for kind, seconds in json.loads(rest).items()}
    took[START] = start_s * 1000
    assert took.keys() == set(KINDS), took.keys()
    return took
