"""Warm kernels: they wait with their imports done, and are in nothing else different from one that has just booted."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, Limits, SandboxProfile
from aeolus_sandbox.engine.base import DEADLINE_LABEL, OWNER_LABEL, ContainerSpec
from aeolus_sandbox.engine.docker import DockerContainer, DockerEngine
from aeolus_sandbox.engine.image_catalog import image_reference
from aeolus_sandbox.guest.frames import (
    Done,
    Execute,
    Frame,
    KernelDied,
    KillKernel,
    LineSplitter,
    Ready,
    Reply,
    Stream,
    decode_reply,
    encode_frame,
)
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.profiles import WarmStart
from aeolus_sandbox.resources import shipped_folder
from aeolus_sandbox.sandboxes.owner import Owner
from tests.integration.running import PATIENCE_S

_FAR_FUTURE = "4102444800"
_LANGUAGES = ("python", "javascript", "typescript", "bash", "r", "wasm")
_STATE = """
import os, random, sys, threading, warnings
import matplotlib, matplotlib.pyplot as plt, numpy, pandas
shell = get_ipython()
print(json.dumps({
    "names": sorted(set(dir()) - {"warnings"}),
    "in": len(In), "out": len(Out), "last": repr([_, __, ___]), "i": repr([_i, _ii]),
    "count": shell.execution_count,
    "figures": plt.get_fignums(),
    "settings": {name: str(value) for name, value in matplotlib.rcParams.items()},
    "random": numpy.random.get_state()[2],
    "columns": pandas.get_option("display.max_columns"),
    "threads": sorted(thread.name for thread in threading.enumerate()),
    "folder": sorted(os.listdir()),
    "environment": dict(os.environ),
    "events": {name: len(found) for name, found in shell.events.callbacks.items()},
    "last error": hasattr(sys, "last_value"),
}))
"""


class Guest:
    """A guest in a container, spoken to by frames alone."""

    def __init__(self, container: DockerContainer) -> None:
        self._container = container
        self._splitter = LineSplitter()
        self._lines: list[bytes] = []

    async def next_line(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            while not self._lines:
                pieces = await self._container.stream.read()
                assert pieces, "the guest has ended"
                for stream, data in pieces:
                    if stream == "stdout":
                        self._lines += self._splitter.feed(data)
        return self._lines.pop(0)

    async def next(self) -> Reply:
        return decode_reply(await self.next_line())

    async def send(self, frame: Frame) -> None:
        await self.send_bytes(encode_frame(frame))

    async def send_bytes(self, data: bytes) -> None:
        await self._container.stream.write(data)

    async def run(self, code: str) -> list[Reply]:
        await self.send(Execute(op=1, code=code))
        replies = [await self.next()]
        while not isinstance(replies[-1], Done | KernelDied):
            replies.append(await self.next())
        return replies

    async def printed(self, code: str) -> str:
        return "".join(reply.text for reply in await self.run(code) if isinstance(reply, Stream))


def profile_of(language: str) -> tuple[SandboxProfile, WarmStart]:
    profile = CodeInterpreterTool().profile(CodeInterpreterInput(code="", language=language))
    assert profile is not None
    assert profile.warm is not None
    return profile, profile.warm


def spec_of(language: str, *, warm: bool, limits: Limits) -> ContainerSpec:
    profile, start = profile_of(language)
    return container_spec(
        profile,
        image=image_reference(profile.image),
        argv=start.argv if warm else profile.argv or (),
        limits=limits,
        labels={OWNER_LABEL: str(Owner.this_process()), DEADLINE_LABEL: _FAR_FUTURE},
        seccomp=(shipped_folder("seccomp") / "default.json").read_text("utf-8"),
    )


@asynccontextmanager
async def guest_of(
    engine: DockerEngine, language: str, *, warm: bool, limits: Limits | None = None
) -> AsyncIterator[Guest]:
    spec = await asyncio.to_thread(spec_of, language, warm=warm, limits=limits or Limits())
    container = await engine.launch(spec)
    try:
        yield Guest(container)
    finally:
        await container.aclose()


@pytest.fixture
async def warm_python(engine: DockerEngine) -> AsyncIterator[Guest]:
    async with guest_of(engine, "python", warm=True) as guest:
        assert isinstance(await guest.next(), Ready)
        yield guest


@pytest.mark.parametrize("language", _LANGUAGES)
async def test_says_first_that_it_waits_and_then_whether_it_still_answers(
    engine: DockerEngine, language: str
) -> None:
    _, start = profile_of(language)
    async with guest_of(engine, language, warm=True) as guest:
        ready = await guest.next()
        assert isinstance(ready, Ready)
        assert ready.language == language
        for _ in range(2):
            await guest.send_bytes(start.ask)
            assert await guest.next_line() + b"\n" == start.answer


async def test_state_is_that_of_a_fresh_kernel(engine: DockerEngine, warm_python: Guest) -> None:
    async with guest_of(engine, "python", warm=False) as fresh:
        assert isinstance(await fresh.next(), Ready)
        first = await fresh.printed("import json" + _STATE)
    warm = await warm_python.printed("import json" + _STATE)
    expected, found = json.loads(first), json.loads(warm)
    for state in (expected, found):  # the private folder's name is each container's own
        for name in ("IPYTHONDIR", "MPLCONFIGDIR"):
            state["environment"].pop(name, None)
    assert found == expected


async def test_imports_are_done_and_a_first_plot_is_shown_once(warm_python: Guest) -> None:
    loaded = await warm_python.printed(
        "import sys; print(*({'numpy', 'pandas', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    assert set(loaded.split()) == {"numpy", "pandas", "matplotlib.pyplot"}
    replies = await warm_python.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); None")
    assert [type(reply).__name__ for reply in replies] == ["Display", "Done"]


async def test_kernel_after_a_death_boots_without_a_warm_up(warm_python: Guest) -> None:
    await warm_python.send(KillKernel(op=7))
    assert isinstance(await warm_python.next(), KernelDied)
    assert isinstance(await warm_python.next(), Ready)
    assert await warm_python.printed("import sys; print('pandas' in sys.modules)") == "False\n"


async def test_warm_up_that_has_no_room_stops_no_kernel(engine: DockerEngine) -> None:
    too_little = Limits(memory_bytes=128 * 1024**2, disk_bytes=1024**2, tmp_bytes=1024**2)
    async with guest_of(engine, "python", warm=True, limits=too_little) as guest:
        while not isinstance(await guest.next(), Ready):
            pass
        assert await guest.printed("print('here')") == "here\n"
