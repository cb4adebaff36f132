"""The promises of `Engine`, kept by the real one and by the test double alike."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path

import pytest

from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import image_reference
from aeolus_sandbox.errors import EngineError, EngineUnavailable, ImageNotFound
from aeolus_sandbox.testing.engine_subject import Subject
from aeolus_sandbox.testing.engine_suite import CHECKS, check_engine
from aeolus_sandbox.testing.local_engine import LocalEngine


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def _open_files_return() -> Iterator[None]:
    before = _open_files()
    yield
    assert _open_files() <= before


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.usefixtures("_open_files_return")
async def test_local_engine(name: str) -> None:
    async with LocalEngine(images={"local"}) as engine:
        await CHECKS[name](Subject(engine, image="local"))
    assert await engine.living_processes() == []


@pytest.fixture(scope="module")
def shell_image() -> str:
    return image_reference("shell")


@pytest.mark.docker
@pytest.mark.parametrize("name", CHECKS)
async def test_docker_engine(name: str, engine: DockerEngine, shell_image: str) -> None:
    await CHECKS[name](Subject(engine, image=shell_image))


async def test_a_broken_promise_is_named() -> None:
    """The suite can fail: an engine without the image breaks the first promise, and is told which."""
    with pytest.raises(ExceptionGroup) as raised:
        await check_engine(lambda: LocalEngine(images=()), image="local", rounds=1)
    assert raised.group_contains(ImageNotFound)
    assert raised.value.__notes__ == ["in the check 'output_of_a_quick_exit_is_never_lost'"]


async def test_the_end_of_a_local_engine_is_the_end_of_all_its_processes() -> None:
    engine = LocalEngine()
    subject = Subject(engine, image="local")
    scripts = ("sleep 60 & setsid sleep 60 & wait", "exec env -i sleep 60", "trap '' HUP TERM; sleep 60")
    containers = [await engine.launch(subject.spec(f"echo begun; {script}", tty=True)) for script in scripts]
    async with asyncio.timeout(10):
        for container in containers:
            assert await container.stream.read()
        assert len(await engine.living_processes()) >= 3
        await engine.aclose()
    assert await engine.living_processes() == []


async def test_a_local_engine_cannot_be_made_to_kill_everything() -> None:
    """A park script's watchdog says `kill -9 -1`: outside of a container that is every process of the user.

    Tried with signal 0, which does nothing at all should it ever get through.
    """
    async with LocalEngine() as engine:
        subject = Subject(engine, image="local")
        for script in ("kill -0 -1", "( (kill -0 -1) & ) ; sleep 60", "kill -s 0 -- -1"):
            _, ended = await subject.output_of(subject.spec(script))
            assert ended.code == 137


@pytest.mark.parametrize("tty", [False, True])
async def test_a_local_engine_that_loses_its_connection_reports_no_end(tty: bool) -> None:
    async with LocalEngine() as engine, asyncio.timeout(10):
        subject = Subject(engine, image="local")
        container = await engine.launch(subject.spec("echo begun; sleep 60", tty=tty))
        assert await container.stream.read()
        async with asyncio.TaskGroup() as group:
            group.create_task(_fails(container.wait_exit(), EngineUnavailable))
            group.create_task(_fails(container.stream.read(), EngineError))
            await asyncio.sleep(0)
            engine.lose_connection()
        await _fails(engine.list_containers({}), EngineUnavailable)
        engine.restore_connection()
        assert len(await engine.list_containers({})) == 1
        await container.aclose()


async def test_a_fault_happens_as_often_as_it_was_asked_for() -> None:
    async with LocalEngine() as engine:
        engine.fail_next("info", EngineUnavailable("no"), times=2)
        for _ in range(2):
            await _fails(engine.info(), EngineUnavailable)
        assert (await engine.info()).name == "local processes"


async def _fails(call: Awaitable[object], error: type[Exception]) -> None:
    with pytest.raises(error):
        await call
