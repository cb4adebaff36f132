"""What a start is made of: the engine's calls one by one, and what changes without one thing or another.

What is left out in a contender is left out only here: to know what it costs, never to do without it.
"""

import asyncio
import copy
import itertools
import json
import shutil
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiodocker

from aeolus_sandbox.engine.image_catalog import resolve_image
from benchmarks.bare import config_of
from benchmarks.bare_host import unpacked
from benchmarks.results import Benchmark, Figure, Series, number
from benchmarks.rounds import PartsContender, Plan, Unavailable, interleaved_parts

ROUNDS: Final = 10
_ARGV: Final = ("sh", "-c", "echo hello; read -r _")
_PARTS: Final = {"create": "ms", "attach": "ms", "start": "ms", "first byte": "ms", "whole": "ms"}
_OURS: Final = "as a session's"
_RUNTIME: Final = "by runc alone, with its own defaults"
_UNPACK_WITHIN_S: Final = 60.0

Body = dict[str, Any]


def _without(**host_config: object) -> Callable[[Body], None]:
    return lambda body: body["HostConfig"].update(host_config)


def _with_network(mode: str) -> Callable[[Body], None]:
    def change(body: Body) -> None:
        body["NetworkDisabled"] = False
        body["HostConfig"]["NetworkMode"] = mode

    return change


def _without_seccomp(body: Body) -> None:
    body["HostConfig"]["SecurityOpt"] = ["no-new-privileges", "seccomp=unconfined"]


_VARIANTS: Final[Mapping[str, Callable[[Body], None]]] = {
    _OURS: lambda _: None,
    "without docker-init": _without(Init=False),
    "without seccomp": _without_seccomp,
    "without tmpfs": _without(Tmpfs={}),
    "without limits": _without(Memory=0, MemorySwap=0, NanoCpus=0, PidsLimit=0, Ulimits=[]),
    "without an ipc namespace": _without(IpcMode="host"),
    "with an empty network of the engine's": _with_network("none"),
    "with a bridge network": _with_network("bridge"),
    "without a network namespace": _with_network("host"),
    "with Docker's defaults and no network": lambda body: body.update(
        NetworkDisabled=False, HostConfig={"NetworkMode": "none"}
    ),
}


async def measure(plan: Plan) -> Benchmark:
    """Measure all variants, and the runtime without an engine."""
    async with aiodocker.Docker() as docker, _runtime_alone() as runtime:
        base = config_of("shell", _ARGV, tty=False)
        contenders: dict[str, PartsContender | Unavailable] = {
            name: _variant(docker, base, change) for name, change in _VARIANTS.items()
        }
        contenders[_RUNTIME] = runtime
        measured = await interleaved_parts(plan, contenders, units=_PARTS, rounds=plan.rounds(ROUNDS))
    series = {
        f"{name}: {part}": one for name, parts in measured.items() for part, one in parts.items() if one.good
    }
    ours = measured[_OURS]
    figures = [_figure(f"a start as a session's: {part}", one, None) for part, one in ours.items()]
    figures += [
        _figure(f"a start {name}, in times a session's", parts["whole"], ours["whole"])
        for name, parts in measured.items()
        if name != _OURS
    ]
    return Benchmark(name="start", series=series, figures=figures)


def _variant(docker: aiodocker.Docker, base: Body, change: Callable[[Body], None]) -> PartsContender:
    body = copy.deepcopy(base)
    change(body)

    async def once() -> Mapping[str, float]:
        moments = [time.perf_counter()]
        container = await docker.containers.create(body)
        moments.append(time.perf_counter())
        try:
            async with container.attach(stdin=True, stdout=True, stderr=True) as stream:
                await stream._init()  # noqa: SLF001 - it attaches when it is first read, which is after the start
                moments.append(time.perf_counter())
                await container.start()
                moments.append(time.perf_counter())
                message = await stream.read_out()
                moments.append(time.perf_counter())
        finally:
            await container.delete(force=True, v=True)
        assert message is not None
        assert message.data.startswith(b"hello"), message
        took = [(after - before) * 1000 for before, after in itertools.pairwise(moments)]
        return dict(zip(_PARTS, [*took, sum(took)], strict=True))

    return once


@asynccontextmanager
async def _runtime_alone() -> AsyncIterator[PartsContender | Unavailable]:
    """Give the runtime's own start of the same program, on the image's files, with its usual namespaces."""
    if shutil.which("runc") is None:
        yield Unavailable("this machine has no runc")
        return
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="aeolus-bench-"))
    try:
        root = folder / "rootfs"
        root.mkdir()
        await asyncio.to_thread(unpacked, resolve_image("shell"), str(root))
        async with asyncio.timeout(_UNPACK_WITHIN_S):
            made = await asyncio.create_subprocess_exec("runc", "spec", cwd=folder)
            await made.wait()
        spec = json.loads((folder / "config.json").read_text())
        spec["process"] |= {"args": list(_ARGV), "terminal": False}
        (folder / "config.json").write_text(json.dumps(spec))
        yield _runc(folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _runc(bundle: Path) -> PartsContender:
    async def once() -> Mapping[str, float]:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *("runc", "run", f"aeolus-bench-{uuid.uuid4().hex[:12]}"),
            cwd=bundle,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        said = await process.stdout.readline()
        took = (time.perf_counter() - began) * 1000
        process.stdin.write(b"\n")
        process.stdin.close()
        rest = await process.stdout.read()
        await process.wait()
        assert said == b"hello\n", said + rest
        return {"whole": took}

    return once


def _figure(name: str, series: Series, other: Series | None) -> Figure:
    value = series.median if other is None else series.ratio_to(other)
    if value is None:
        shown = series.absence or "not measured"
    else:
        unit = " ms" if other is None else f" ({number(series.median)} ms)"
        shown = f"{number(value)}{unit}"
    return Figure(name=name, target="-", measured=shown, value=value, met=None)
