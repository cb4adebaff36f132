"""Peers: the same work through other libraries that run code in Docker containers, side by side on one image."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiodocker

from aeolus_sandbox import SessionManager
from aeolus_sandbox.engine.docker import DockerEngine
from benchmarks import peer_image
from benchmarks.peer_ours import Ours
from benchmarks.peer_process import PeerFailed, PeerProcess, PeerProgram, workers
from benchmarks.peer_results import figures, grids
from benchmarks.results import Benchmark, Series
from benchmarks.rounds import Contender, Plan, Unavailable, interleaved

OURS: Final = "ours"
PROGRAMS: Final = (
    PeerProgram("docker CLI", "benchmarks.peer_workers.docker_cli"),
    PeerProgram("llm-sandbox", "benchmarks.peer_workers.llm_sandbox_worker", "llm-sandbox"),
    PeerProgram("SWE-ReX", "benchmarks.peer_workers.swe_rex_worker", "swe-rex"),
    PeerProgram("smolagents", "benchmarks.peer_workers.smolagents_worker", "smolagents"),
    PeerProgram("AutoGen", "benchmarks.peer_workers.autogen_worker", "autogen"),
    PeerProgram("testcontainers", "benchmarks.peer_workers.testcontainers_worker", "testcontainers"),
)
ROUNDS: Final = {"warm_command": 9, "warm_code": 9, "command": 15, "cell": 15, "cold": 6, "first_cell": 3}
"""How often each is measured, in this order: what is wanted of the pools first, while nothing else runs."""
_RESTED: Final = {"warm_command", "warm_code", "cold", "first_cell"}
"""Before each sample of these the engine has nothing to do: what the one before left to start or remove is done."""
OUTPUT_ROUNDS: Final = 4
OUTPUT_MIB: Final = 100
AT_ONCE: Final = 20
_MIB: Final = 2**20
_PREPARE_LIMIT_S: Final = 150.0
_BURST_LIMIT_S: Final = 170.0


@dataclass(frozen=True, slots=True)
class Sides:
    """Who is measured."""

    ours: Ours
    peers: Mapping[str, PeerProcess]

    def able(self, ability: str) -> dict[str, PeerProcess]:
        """Return the peers that can do something."""
        return {name: peer for name, peer in self.peers.items() if ability in peer.abilities}


async def measure(plan: Plan) -> Benchmark:
    """Measure what each can do; a peer that is not installed is named, with the reason."""
    async with AsyncExitStack() as stack:
        docker = await stack.enter_async_context(aiodocker.Docker())
        images = (peer_image.reference(), peer_image.gateway_reference())
        here = await _are_here(docker, images)
        if here:
            await stack.enter_async_context(leaving_nothing(docker, images))
        engine = await stack.enter_async_context(DockerEngine())
        plain, pooled = [await stack.enter_async_context(SessionManager()) for _ in range(2)]
        peers, absent = await stack.enter_async_context(workers(PROGRAMS if here else (), images))
        if not here:
            missing = Unavailable("its image is not built (scripts/setup peers)")
            absent = {program.name: missing for program in PROGRAMS}
        sides = Sides(Ours(plain, pooled, engine, images[0] if here else "shell"), peers)
        versions = {name: peer.version for name, peer in peers.items()}
        series = await _measured(plan, sides)
    series |= {name: Series(unit="ms", unavailable=each.reason) for name, each in absent.items()}
    rows = figures(series, absent={name: each.reason for name, each in absent.items()})
    return Benchmark(
        name="peers", series=series, figures=rows, grids=grids(series, absent), notes={"versions": versions}
    )


async def _measured(plan: Plan, sides: Sides) -> dict[str, Series]:
    series: dict[str, Series] = {}
    await sides.ours.prepare()
    for ability, rounds in ROUNDS.items():
        ready, failed = await _prepared(plan, sides, ability)
        contenders = {f"{ability}, {OURS}": sides.ours.timed()[ability]}
        contenders |= {f"{ability}, {name}": _timed(peer, ability) for name, peer in ready.items()}
        if ability in _RESTED:
            contenders = {name: sides.ours.rested(each) for name, each in contenders.items()}
        series |= await interleaved(plan, contenders, rounds=plan.rounds(rounds)) | failed
        if ability == "cold":
            series |= await _lives(plan.rounds(rounds), sides)
    return series | await _output(plan, sides) | await _bursts(plan, sides)


async def _prepared(
    plan: Plan, sides: Sides, ability: str
) -> tuple[dict[str, PeerProcess], dict[str, Series]]:
    """Have the peers open what they need, in no time that counts; return those that could, and the others' failures."""
    ready: dict[str, PeerProcess] = {}
    failed: dict[str, Series] = {}
    for name, peer in sides.able(ability).items():
        plan.say(f"{ability}: {name} gets ready")
        try:
            await peer.ask("prepare", limit_s=_PREPARE_LIMIT_S, **{"for": ability})
        except PeerFailed as error:
            failed[f"{ability}, {name}"] = Series(
                unit="ms", samples=[None], failures=[f"to get ready: {error}"]
            )
        else:
            ready[name] = peer
    return ready, failed


def _timed(peer: PeerProcess, ability: str) -> Contender:
    async def once() -> float:
        return float((await peer.ask(ability))["took_ms"])

    return once


async def _lives(rounds: int, sides: Sides) -> dict[str, Series]:
    """Return how long whole lives were, of those that `cold` has started; many ended while others were measured."""
    series = {f"life, {OURS}": Series(unit="ms", samples=sides.ours.lives.samples[-rounds:])}
    for name, peer in sides.able("cold").items():
        try:
            lives = (await peer.ask("lives"))["lives_ms"][-rounds:]
            failures = [] if lives else ["no sandbox has come to its end"]
        except PeerFailed as error:
            lives, failures = [], [str(error)]
        series[f"life, {name}"] = Series(unit="ms", samples=lives, failures=failures)
    return series


async def _output(plan: Plan, sides: Sides) -> dict[str, Series]:
    size = (8 if plan.quick else OUTPUT_MIB) * _MIB
    memory = {f"output, {name}, memory": Series(unit="MiB") for name in (OURS, *sides.able("output"))}
    contenders = {f"output, {OURS}": sides.ours.output(size, memory[f"output, {OURS}, memory"])}
    ready, failed = await _prepared(plan, sides, "output")
    for name, peer in ready.items():
        contenders[f"output, {name}"] = _speed(peer, size, memory[f"output, {name}, memory"])
    series = await interleaved(plan, contenders, rounds=plan.rounds(OUTPUT_ROUNDS), unit="MiB/s")
    return series | failed | {name: each for name, each in memory.items() if each.good}


def _speed(peer: PeerProcess, size: int, memory: Series) -> Contender:
    async def once() -> float:
        answer = await peer.ask("output", bytes=size)
        if answer["growth_bytes"] is not None:
            memory.samples.append(answer["growth_bytes"] / _MIB)
        return float(size / _MIB / (answer["took_ms"] / 1000))

    return once


async def _bursts(plan: Plan, sides: Sides) -> dict[str, Series]:
    """Measure each once, for they take long; what failed of the many is told beside the time of the others."""
    count = 3 if plan.quick else AT_ONCE
    failed: dict[str, list[str]] = {}
    contenders: dict[str, Contender] = {f"burst, {OURS}": sides.ours.burst(count)}
    for name, peer in sides.able("burst").items():
        contenders[f"burst, {name}"] = _burst(peer, count, failed.setdefault(f"burst, {name}", []))
    once = Plan(quick=False, shuffle=plan.shuffle, say=plan.say)
    series = await interleaved(once, contenders, rounds=1, warm_up=0, unit="s", timeout_s=_BURST_LIMIT_S + 10)
    for name, failures in failed.items():
        series[name].failures.extend(failures)
    return series


def _burst(peer: PeerProcess, count: int, failed: list[str]) -> Contender:
    async def once() -> float:
        answer = await peer.ask("burst", limit_s=_BURST_LIMIT_S, count=count)
        if answer["failed"]:
            failed.append(f"{answer['failed']} of {count} failed: {answer['failures'][0]}")
        assert answer["failed"] < count, failed
        return float(answer["took_ms"]) / 1000

    return once


async def _are_here(docker: aiodocker.Docker, images: tuple[str, ...]) -> bool:
    found = {tag for image in await docker.images.list() for tag in image["RepoTags"] or ()}
    return found.issuperset(images)


@asynccontextmanager
async def leaving_nothing(docker: aiodocker.Docker, images: tuple[str, ...]) -> AsyncIterator[None]:
    """Remove what was started on these images meanwhile and is still there; what was there before stays."""
    before = await _containers(docker, images)
    try:
        yield
    finally:
        for container in await _containers(docker, images) - before:
            try:
                await docker.containers.container(container).delete(force=True, v=True)
            except aiodocker.DockerError as error:
                if error.status not in {404, 409}:  # gone, or just being removed
                    raise


async def _containers(docker: aiodocker.Docker, images: tuple[str, ...]) -> set[str]:
    filters = json.dumps({"ancestor": list(images)})
    return {each.id for each in await docker.containers.list(all=True, filters=filters)}
