"""Parked: from taking a container that waits to its first output, against `docker run` of the same image."""

import asyncio
import shutil
import time
import uuid
from typing import Any, Final

import docker

from aeolus_sandbox import Limits, SandboxProfile, TerminalInput
from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import resolve_image
from aeolus_sandbox.sandboxes.launcher import Launcher
from aeolus_sandbox.sandboxes.lease import Lease
from aeolus_sandbox.sandboxes.owner import Owner
from benchmarks.bare import GREETING, seccomp_profile
from benchmarks.results import Benchmark, at_least, at_most, versus
from benchmarks.rounds import Contender, Plan, interleaved

ROUNDS = 25
TARGET_MS = 5
TARGET_RATIO = 50
_SETTLE_S: Final = 0.3
"""How long a container waits parked before it is taken: until the engine has finished what its start began."""
_ARGV = TerminalInput(command=GREETING).argv


async def measure(plan: Plan) -> Benchmark:
    """Measure parked containers with a terminal and without, and `docker run`."""
    tasks = BackgroundTasks()
    async with DockerEngine() as engine:
        launcher = Launcher(engine, owner=str(Owner.this_process()), seccomp=seccomp_profile())
        run = _command_line() if shutil.which("docker") else _sdk()
        contenders: dict[str, Contender] = {
            "parked, terminal": _parked(launcher, tasks, tty=True),
            "parked, pipes": _parked(launcher, tasks, tty=False),
            "docker run": run,
        }
        series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS))
        await tasks.aclose(timeout_s=30)
    parked, cold = series["parked, terminal"], series["docker run"]
    what = "parked terminal, acquire to first output"
    detail = f"p95 {parked.p95:.3g} ms" if parked.p95 is not None else ""
    figures = [
        at_most(what, TARGET_MS, parked.median, unit=" ms", detail=detail),
        at_least(
            f"{what}: faster than `docker run`",
            TARGET_RATIO,
            cold.ratio_to(parked),
            unit=" times",
            detail=versus(parked, cold),
        ),
    ]
    return Benchmark(name="parked", series=series, figures=figures)


def _parked(launcher: Launcher, tasks: BackgroundTasks, *, tty: bool) -> Contender:
    profile = SandboxProfile(image="shell", tty=tty)

    async def once() -> float:
        lease = Lease(uuid.uuid4().hex, tasks)
        try:
            sandbox = await launcher.park(profile, Limits(), lease)
            await asyncio.sleep(_SETTLE_S)
            began = time.perf_counter()
            process = await sandbox.exec(_ARGV)
            [piece] = await process.read()
            took = time.perf_counter() - began
        finally:
            await lease.aclose()
        assert piece.data.startswith(b"hello"), piece
        return took * 1000

    return once


def _command_line() -> Contender:
    image = resolve_image("shell")

    async def once() -> float:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *("docker", "run", "--rm", "--network", "none", image, *_ARGV), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        said = await process.stdout.read(1)
        took = time.perf_counter() - began
        rest, _ = await process.communicate()
        assert (said + rest).startswith(b"hello"), (said, rest)
        return took * 1000

    return once


def _sdk() -> Contender:
    """The same through the docker SDK, for machines without the command line."""
    image = resolve_image("shell")
    api: Any = docker.from_env().api

    def run() -> float:
        began = time.perf_counter()
        settings = api.create_host_config(network_mode="none")
        container = api.create_container(image, list(_ARGV), host_config=settings)
        try:
            output = api.attach(container, stream=True)
            api.start(container)
            said = next(output)
            took = time.perf_counter() - began
        finally:
            api.remove_container(container, force=True, v=True)
        assert said.startswith(b"hello"), said
        return took * 1000

    async def once() -> float:
        return await asyncio.to_thread(run)

    return once
