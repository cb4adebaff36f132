"""Cold: a terminal session's opening to its first output, against bare aiodocker on the same specification."""

import time

import aiodocker

from aeolus_sandbox import SessionManager, TerminalInput, TerminalTool
from benchmarks.bare import GREETING, config_of, started
from benchmarks.results import Benchmark, at_most, versus
from benchmarks.rounds import Contender, Plan, interleaved

ROUNDS = 20
TARGET = 1.15
_KINDS = {"pipes": False, "terminal": True}


async def measure(plan: Plan) -> Benchmark:
    """Measure both kinds of session, with a terminal and without."""
    async with SessionManager() as manager, aiodocker.Docker() as docker:
        contenders: dict[str, Contender] = {}
        for kind, tty in _KINDS.items():
            contenders[f"session, {kind}"] = _session(manager, tty=tty)
            contenders[f"bare aiodocker, {kind}"] = _bare(docker, tty=tty)
        series = await interleaved(plan, contenders, rounds=plan.rounds(ROUNDS))
    figures = []
    for kind, tty in _KINDS.items():
        ours, bare = series[f"session, {kind}"], series[f"bare aiodocker, {kind}"]
        name = f"cold session on {'a terminal' if tty else 'pipes'}, open to first output, against bare aiodocker"
        figures.append(at_most(name, TARGET, ours.ratio_to(bare), unit=" times", detail=versus(ours, bare)))
    return Benchmark(name="cold", series=series, figures=figures)


def _session(manager: SessionManager, *, tty: bool) -> Contender:
    tool = TerminalTool()

    async def once() -> float:
        began = time.perf_counter()
        async with await manager.open(tool, TerminalInput(command=GREETING, tty=tty)) as session:
            chunk = await session.next_chunk()
            took = time.perf_counter() - began
        assert chunk is not None
        assert chunk.text.startswith("hello"), chunk.text
        return took * 1000

    return once


def _bare(docker: aiodocker.Docker, *, tty: bool) -> Contender:
    config = config_of("shell", TerminalInput(command=GREETING).argv, tty=tty)

    async def once() -> float:
        began = time.perf_counter()
        async with started(docker, config) as stream:
            message = await stream.read_out()
            took = time.perf_counter() - began
        assert message is not None
        assert message.data.startswith(b"hello"), message
        return took * 1000

    return once
