"""No container outlives its owner, and nobody else's container is ever touched."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import docker
import pytest
from docker.models.containers import Container

from aeolus_sandbox import Limits, SandboxProfile, SessionManager
from aeolus_sandbox.engine.base import DEADLINE_LABEL, OWNER_LABEL, SESSION_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.sandboxes.launch_line import launch_line, park_command
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.sandboxes.parked import ParkedContainer
from aeolus_sandbox.sandboxes.reaper import Reaper
from tests.integration.conftest import StartOwner
from tests.integration.running import PATIENCE_S, containers_of, open_command, read_until, wait_until_none

pytestmark = pytest.mark.docker

GONE_WITHIN_S: Final = 15
MakeContainer = Callable[..., Container]


# The host process ends.


@pytest.mark.parametrize("kind", ["tty", "pipes", "tty,pipes,tty"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
async def test_killed_host_process_leaves_no_container(
    engine: DockerEngine, start_owner: StartOwner, kind: str, how: signal.Signals
) -> None:
    owner = await start_owner(kind, "wait")
    assert len(await containers_of(engine, owner.owner)) == len(owner.sessions)
    owner.process.send_signal(how)
    assert await owner.wait_ended() == -how
    await wait_until_none(engine, {OWNER_LABEL: owner.owner}, within_s=GONE_WITHIN_S)


async def test_interrupted_host_process_leaves_no_container(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    owner = await start_owner("tty,pipes", "wait")
    owner.process.send_signal(signal.SIGINT)
    await owner.wait_ended()
    assert await containers_of(engine, owner.owner) == []


async def test_exception_in_user_code_leaves_no_container(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    owner = await start_owner("tty,pipes", "raise")
    assert await owner.wait_ended() == 1
    assert await containers_of(engine, owner.owner) == []


async def test_abrupt_exit_leaves_no_container(engine: DockerEngine, start_owner: StartOwner) -> None:
    owner = await start_owner("tty,pipes", "exit")
    assert await owner.wait_ended() == 3
    await wait_until_none(engine, {OWNER_LABEL: owner.owner}, within_s=GONE_WITHIN_S)


async def test_ending_fork_does_not_remove_the_containers_of_its_parent(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    owner = await start_owner("tty,pipes", "fork")
    assert (await owner.read_line()).strip() == "forked"
    await Reaper(engine).sweep()
    states = [container.state for container in await containers_of(engine, owner.owner)]
    assert states == ["running", "running"]


async def test_living_session_of_another_process_survives_a_reaper_and_a_killed_neighbour(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    alive = await start_owner("tty,pipes", "wait")
    killed = await start_owner("tty,pipes", "wait")
    killed.process.kill()
    await killed.wait_ended()
    await Reaper(engine).sweep()
    assert await containers_of(engine, killed.owner) == []
    assert [container.state for container in await containers_of(engine, alive.owner)] == [
        "running",
        "running",
    ]


# The guard.


def _guards(owner: str) -> list[int]:
    """Return the guard processes of an owner."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if owner.encode() in command and b"aeolus_sandbox.sandboxes.guard" in command:
            found.append(int(folder.name))
    return found


async def test_guard_ends_with_its_manager() -> None:
    async with SessionManager() as manager:
        session = await open_command(manager, "echo up; sleep 300; :")
        await read_until(session, "up")
        async with asyncio.timeout(PATIENCE_S):
            while not _guards(manager.owner):  # noqa: ASYNC110 - it is started in the background
                await asyncio.sleep(0.05)
    assert _guards(manager.owner) == []


async def test_guard_of_a_killed_process_ends_after_its_sweep(
    engine: DockerEngine, start_owner: StartOwner
) -> None:
    owner = await start_owner("tty", "wait")
    assert len(_guards(owner.owner)) == 1
    owner.process.kill()
    await owner.wait_ended()
    async with asyncio.timeout(PATIENCE_S):
        while _guards(owner.owner):  # noqa: ASYNC110 - the process of somebody else
            await asyncio.sleep(0.1)
    assert await containers_of(engine, owner.owner) == []


# The reaper.


@pytest.fixture
def make_container(shell_image: str) -> Iterator[MakeContainer]:
    """Make containers with labels of our choice."""
    client = docker.from_env()
    made: list[Container] = []

    def make(labels: dict[str, str], *, started: bool = True, **settings: Any) -> Container:
        container = client.containers.create(
            shell_image,
            ["sleep", "300"],
            labels=labels,
            network_mode="none",
            **settings,
        )
        made.append(container)
        if started:
            container.start()
        return container

    yield make
    for container in made:
        try:
            container.remove(force=True)
        except docker.errors.NotFound:
            continue
    client.close()


class DyingOwner:
    """A process whose label containers get while it lives: until then no reaper of another test removes them."""

    def __init__(self) -> None:
        program = (
            "import sys; from aeolus_sandbox.sandboxes.owner import Owner; "
            "print(Owner.this_process(), flush=True); sys.stdin.read()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.label = self._process.stdout.readline().strip()

    def die(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def dying_owner() -> Iterator[DyingOwner]:
    """Give an owner that can be ended."""
    owner = DyingOwner()
    yield owner
    owner.die()


def _exists(container: Container) -> bool:
    try:
        container.reload()
    except docker.errors.NotFound:
        return False
    return True


async def test_reaper_removes_what_a_dead_owner_left_in_any_state(
    engine: DockerEngine, make_container: MakeContainer, dying_owner: DyingOwner
) -> None:
    labels = {OWNER_LABEL: dying_owner.label}
    running = make_container(labels)
    never_started = make_container(labels, started=False)
    paused = make_container(labels)
    paused.pause()
    exited = make_container(labels)
    exited.kill()
    doomed = (running, never_started, paused, exited)
    await Reaper(engine).sweep()
    assert all(_exists(container) for container in doomed)
    dying_owner.die()
    async with asyncio.timeout(PATIENCE_S):
        reaped = await Reaper(engine).sweep()
    assert reaped.failed == ()
    assert not any(_exists(container) for container in doomed)


async def test_reaper_leaves_a_living_owner_and_strangers_alone(
    engine: DockerEngine, make_container: MakeContainer
) -> None:
    long_ago = {DEADLINE_LABEL: "1000"}
    living = make_container({OWNER_LABEL: str(Owner.this_process())} | long_ago, started=False)
    stranger = make_container({"aeolus.test": "yes"} | long_ago, started=False)
    lookalike = make_container({f"{OWNER_LABEL}.x": "1:2:3:4"} | long_ago, started=False)
    reaped = await Reaper(engine).sweep()
    assert all(_exists(container) for container in (living, stranger, lookalike))
    assert not {living.id, stranger.id, lookalike.id} & set(reaped.removed)
    assert reaped.living >= 1


async def test_reused_process_id_does_not_keep_a_container(
    engine: DockerEngine, make_container: MakeContainer
) -> None:
    me = Owner.this_process()
    earlier = Owner(me.host, me.pid, str(int(me.started) - 1), me.nonce)
    left = make_container({OWNER_LABEL: str(earlier)}, started=False)
    await Reaper(engine).sweep()
    assert not _exists(left)


async def test_owner_on_another_machine_is_judged_by_its_deadline(
    engine: DockerEngine, make_container: MakeContainer
) -> None:
    owner = f"{uuid.uuid4()}-1:77:1234:{uuid.uuid4().hex}"
    overdue = make_container({OWNER_LABEL: owner, DEADLINE_LABEL: "1000"}, started=False)
    in_time = make_container({OWNER_LABEL: owner, DEADLINE_LABEL: "99999999999"}, started=False)
    odd = make_container({OWNER_LABEL: "what is this", DEADLINE_LABEL: "soon"}, started=False)
    await Reaper(engine).sweep()
    assert not _exists(overdue)
    assert _exists(in_time)
    assert _exists(odd)


async def test_new_manager_reaps_what_others_left(
    engine: DockerEngine, manager: SessionManager, make_container: MakeContainer, dying_owner: DyingOwner
) -> None:
    make_container({OWNER_LABEL: dying_owner.label}, started=False)
    dying_owner.die()
    async with await open_command(manager, "true"):
        await wait_until_none(engine, {OWNER_LABEL: dying_owner.label}, within_s=PATIENCE_S)


async def test_two_reapers_at_once_do_not_disturb_each_other(
    engine: DockerEngine, make_container: MakeContainer, dying_owner: DyingOwner
) -> None:
    left = [make_container({OWNER_LABEL: dying_owner.label}) for _ in range(4)]
    dying_owner.die()
    async with asyncio.TaskGroup() as group:
        sweeps = [group.create_task(Reaper(engine).sweep()) for _ in range(4)]
    assert all(sweep.result().failed == () for sweep in sweeps)
    assert not any(_exists(container) for container in left)


# The watchdog inside.


@pytest.mark.parametrize("tty", [True, False])
async def test_container_ends_at_its_deadline_although_nobody_ends_it(
    engine: DockerEngine, shell_image: str, tty: bool
) -> None:
    labels = {OWNER_LABEL: str(Owner.this_process()), SESSION_LABEL: uuid.uuid4().hex}
    spec = container_spec(
        SandboxProfile(image="shell", tty=tty),
        image=shell_image,
        argv=park_command(tty=tty, deadline_s=2),
        limits=Limits(),
        labels=labels,
        seccomp=(Path(__file__).resolve().parents[2] / "seccomp" / "default.json").read_text(),
    )
    container = await engine.launch(spec)
    try:
        parked = ParkedContainer(container, tty=tty)
        await parked.wait_ready()
        began = time.monotonic()
        # A program that ignores every signal that can be ignored, with children that do too.
        stubborn = "trap '' HUP INT QUIT TERM; (sleep 300) & echo up; while :; do sleep 300; done"
        await parked.exec(["sh", "-c", stubborn])
        async with asyncio.timeout(PATIENCE_S):
            ended = await container.wait_exit()
        assert ended.code == 137
        assert time.monotonic() - began < 30
    finally:
        await container.aclose()


async def test_parked_container_that_is_never_used_ends_at_its_deadline(
    engine: DockerEngine, shell_image: str
) -> None:
    labels = {OWNER_LABEL: str(Owner.this_process())}
    spec = container_spec(
        SandboxProfile(image="shell", tty=True),
        image=shell_image,
        argv=park_command(tty=True, deadline_s=1),
        limits=Limits(),
        labels=labels,
        seccomp=(Path(__file__).resolve().parents[2] / "seccomp" / "default.json").read_text(),
    )
    container = await engine.launch(spec)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await container.wait_exit()
    finally:
        await container.aclose()


async def test_program_sees_no_watchdog_among_its_children(manager: SessionManager) -> None:
    session = await open_command(manager, ("python3", "-c", "import os; os.waitpid(-1, 0)"), tty=False)
    text = "".join([chunk.text async for chunk in session])
    assert "ChildProcessError" in text


# Nothing is shared between two managers.


async def test_two_managers_start_at_the_same_moment(engine: DockerEngine) -> None:
    async def run() -> str:
        async with SessionManager() as manager, await open_command(manager, "echo up; cat") as session:
            await read_until(session, "up")
            [container] = await containers_of(engine, manager.owner)
            assert re.fullmatch(r"[0-9a-f]{64}", container.id)
            return manager.owner

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(run()) for _ in range(3)]
    owners = {task.result() for task in runs}
    assert len(owners) == 3
    for owner in owners:
        assert Owner.parse(owner).pid == os.getpid()
        assert await containers_of(engine, owner) == []


def test_label_of_a_container_needs_no_unused_launch_line() -> None:
    # The owner's label goes into an environment and command lines: it must be one plain word.
    label = str(Owner.this_process())
    assert re.fullmatch(r"[0-9A-Za-z:.-]+", label)
    assert launch_line(["true"], env={"OWNER": label}, cwd="/").count(b"\n") == 1
