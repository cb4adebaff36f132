"""Kernels that are kept: their state, their order, what keeps them apart, and when they go."""

import asyncio
from collections.abc import AsyncIterator

import aiodocker
import pytest

from aeolus_sandbox import (
    CapabilityDenied,
    CodeInterpreterInput,
    CodeInterpreterTool,
    ConfigurationError,
    Grants,
    ImageNotFound,
    Limits,
    QuotaExceeded,
    SessionClosed,
    SessionManager,
)
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.limits import MIB
from aeolus_sandbox.tools.code_interpreter import kernel as kernel_module
from tests.integration.code_runs import (
    container_count,
    finish,
    open_code,
    read_until,
    run_code,
    shared_manager,
    wait_container_count,
)
from tests.integration.running import PATIENCE_S

pytestmark = pytest.mark.docker

TOOL = CodeInterpreterTool.name


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def test_state_is_kept_between_calls_of_one_id(shared: SessionManager) -> None:
    await run_code(shared, "x = 41\nopen('kept.txt', 'w').write('file')", session_id="a")
    ran = await run_code(shared, "print(open('kept.txt').read()); x + 1", session_id="a")
    assert (ran.text(), ran.result.result) == ("file\n", "42")
    assert not ran.result.environment_recreated


async def test_two_ids_share_nothing(shared: SessionManager) -> None:
    marked = (
        "import os, subprocess; secret = 1; open('secret.txt', 'w').write('s'); os.environ['SECRET'] = 's'\n"
        "open('/tmp/secret.txt', 'w').write('s'); p = subprocess.Popen(['sleep', '77'])"
    )
    code = (
        "import glob, os\nprint('secret' in globals(), os.path.exists('secret.txt'), os.path.exists('/tmp/secret.txt'))\n"
        "print('SECRET' in os.environ, any('77' in open(p).read() for p in glob.glob('/proc/[0-9]*/cmdline')))"
    )
    await run_code(shared, marked, session_id="a")
    async with asyncio.TaskGroup() as group:  # also at the same time
        other = group.create_task(run_code(shared, code, session_id="b"))
        own = group.create_task(run_code(shared, code, session_id="a"))
    assert other.result().text() == "False False False\nFalse False\n"
    assert own.result().text() == "True True True\nTrue True\n"


async def test_no_id_starts_afresh_and_leaves_no_container(
    manager: SessionManager, engine: DockerEngine
) -> None:
    await run_code(manager, "x = 1; open('f', 'w').write('1')")
    ran = await run_code(manager, "import os; print('x' in globals(), os.listdir('.'))")
    assert ran.text() == "False []\n"
    await wait_container_count(engine, manager, 0)


async def test_cells_of_one_id_that_are_opened_at_once_run_in_order(shared: SessionManager) -> None:
    async with asyncio.TaskGroup() as group:
        first = group.create_task(
            run_code(shared, "order = [1]; import time; time.sleep(0.3); 1/0", session_id="a")
        )
        second = group.create_task(run_code(shared, "order.append(2); print('second')", session_id="a"))
        third = group.create_task(run_code(shared, "order.append(3); order", session_id="a"))
    assert first.result().error_name == "ZeroDivisionError"
    assert second.result().text() == "second\n"
    assert third.result().result.result == "[1, 2, 3]"


@pytest.mark.slow
async def test_first_output_of_thirty_new_kernels_is_never_lost(shared: SessionManager) -> None:
    for _ in range(10):
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(run_code(shared, "print('first')")) for _ in range(3)]
        assert [run.result().text() for run in runs] == ["first\n"] * 3


async def test_late_output_of_a_thread_is_neither_lost_nor_holds_its_cell_open(
    shared: SessionManager,
) -> None:
    thread = (
        "import threading, time\ndef late():\n  for i in range(3):\n    time.sleep(0.2); print(f'bg {i}')\n"
        "threading.Thread(target=late).start(); print('main done')"
    )
    first = await run_code(shared, thread, session_id="a")
    assert first.text() == "main done\n"
    second = await run_code(shared, "time.sleep(1); print('second cell')", session_id="a")
    printed = "".join(chunk.content for chunk in [*first.chunks, *second.chunks])
    assert [printed.count(f"bg {i}\n") for i in range(3)] == [1, 1, 1]
    assert "second cell" in second.text()


async def test_output_between_two_cells_is_the_next_ones_and_marked(shared: SessionManager) -> None:
    code = "import threading\nthreading.Timer(0.2, lambda: print('late', flush=True)).start()"
    first = await run_code(shared, code, session_id="late")
    assert first.text() == ""
    await run_code(shared, "1", session_id="other")  # time passes without a session that reads
    second = await run_code(shared, "import time; time.sleep(0.4); print('own')", session_id="late")
    assert second.text().replace("late\n", "") == "own\n"
    assert second.text().count("late\n") == 1
    assert [chunk.content for chunk in second.chunks if chunk.background] == ["late\n"]


async def test_flood_between_two_cells_stalls_nobody(shared: SessionManager, engine: DockerEngine) -> None:
    flood = (
        "import threading\ndef flood():\n  while not stop.is_set(): print('z' * 1000)\n"
        "stop = threading.Event(); threading.Thread(target=flood, daemon=True).start(); print('started')"
    )
    await run_code(shared, flood, session_id="flood")
    ran = await run_code(shared, "stop.set(); 6 * 7", session_id="flood")
    assert ran.result.result == "42"
    await run_code(shared, flood, session_id="flood")
    before = await container_count(engine, shared)
    async with asyncio.timeout(10):
        await shared.kept.close(TOOL, "flood")
    assert await container_count(engine, shared) == before - 1


async def test_closed_kernel_is_gone_with_its_container_and_nobody_is_warned(
    manager: SessionManager, engine: DockerEngine
) -> None:
    await run_code(manager, "x = 1", session_id="s")
    assert await container_count(engine, manager) == 1
    await manager.kept.close(TOOL, "s")
    assert await container_count(engine, manager) == 0
    assert manager.kept.list() == []
    ran = await run_code(manager, "'x' in globals()", session_id="s")
    assert (ran.result.result, ran.result.environment_recreated) == ("False", False)


async def test_restarted_kernel_is_fresh_under_the_same_id_and_nobody_is_warned(
    manager: SessionManager, engine: DockerEngine
) -> None:
    small = Limits(memory_bytes=512 * MIB, pids=64)
    marked = "import os, subprocess; x = 1; open('f', 'w').write('1'); os.environ['E'] = '1'; subprocess.Popen(['sleep', '78'])"
    await run_code(manager, marked, session_id="s", limits=small)
    await manager.kept.restart(TOOL, "s")
    assert await container_count(engine, manager) == 1
    [kept] = manager.kept.list()
    assert (kept.session_id, kept.is_busy) == ("s", False)
    code = (
        "import glob, os\nprint('x' in globals(), os.listdir('.'), 'E' in os.environ)\n"
        "print(any('78' in open(p).read() for p in glob.glob('/proc/[0-9]*/cmdline')))\n"
        "print(os.statvfs('/workspace').f_blocks * os.statvfs('/workspace').f_frsize <= 256 * 2**20)"
    )
    ran = await run_code(manager, code, session_id="s", limits=small)
    assert ran.text() == "False [] False\nFalse\nTrue\n"
    assert not ran.result.environment_recreated
    with pytest.raises(SessionClosed, match="nothing is kept under"):
        await manager.kept.restart(TOOL, "other")


async def test_list_says_what_is_kept_and_what_is_busy(manager: SessionManager) -> None:
    await run_code(manager, "1", session_id="idle")
    async with await open_code(
        manager, "print('on', flush=True)\nwhile True: pass", session_id="busy"
    ) as session:
        await read_until(session, "on")
        busy, idle = manager.kept.list()
    assert (busy.tool, busy.session_id, busy.image, busy.language) == (TOOL, "busy", "python", "python")
    assert (busy.is_busy, busy.idle_s, idle.session_id, idle.is_busy) == (True, 0.0, "idle", False)
    assert 0 < idle.idle_s < idle.age_s


async def test_kernel_that_nobody_uses_expires_and_the_next_call_says_so(engine: DockerEngine) -> None:
    async with SessionManager(kept_idle_s=0.3) as manager:
        await run_code(manager, "x = 1", session_id="s")
        await run_code(manager, "import time; time.sleep(0.6)", session_id="s")  # in use is not idle
        assert await container_count(engine, manager) == 1
        await wait_container_count(engine, manager, 0)
        ran = await run_code(manager, "'x' in globals()", session_id="s")
        assert (ran.result.result, ran.result.environment_recreated) == ("False", True)


async def test_old_kernel_goes_however_often_it_is_used_but_not_in_the_middle_of_a_call(
    engine: DockerEngine,
) -> None:
    async with SessionManager(kept_lifetime_s=0.5) as manager:
        slow = "import time; x = 1; time.sleep(1); print('to the end')"
        assert (await run_code(manager, slow, session_id="s")).text() == "to the end\n"
        ran = await run_code(manager, "'x' in globals()", session_id="s")
        assert (ran.result.result, ran.result.environment_recreated) == ("False", True)
        await wait_container_count(engine, manager, 0)


async def test_kernel_that_makes_room_for_another_is_announced() -> None:
    async with SessionManager(max_kept=1) as manager:
        await run_code(manager, "x = 1", session_id="a")
        await run_code(manager, "x = 1", session_id="b")
        assert [kept.session_id for kept in manager.kept.list()] == ["b"]
        ran = await run_code(manager, "'x' in globals()", session_id="a")
        assert (ran.result.result, ran.result.environment_recreated) == ("False", True)


@pytest.mark.parametrize("how", ["removed", "killed"])
async def test_kernel_whose_container_is_lost_between_calls_is_replaced_and_announced_at_once(
    manager: SessionManager, engine: DockerEngine, how: str
) -> None:
    code = "x = 1; print('begun')"
    if how == "killed":  # a while after the call has ended
        code += "; import os, threading; threading.Timer(0.3, lambda: os.kill(os.getppid(), 9)).start()"
    await run_code(manager, code, session_id="s")
    [found] = await engine.list_containers({OWNER_LABEL: manager.owner})
    if how == "removed":
        await engine.remove_container(found.id)
    else:
        async with asyncio.timeout(PATIENCE_S):
            while (await engine.list_containers({OWNER_LABEL: manager.owner}))[0].state == "running":  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.05)
    ran = await run_code(manager, "'x' in globals()", session_id="s")
    assert (ran.result.result, ran.result.environment_recreated) == ("False", True)
    assert [chunk.content for chunk in ran.of("status")] == [
        "the kernel was replaced: its variables are lost"
    ]
    assert not (await run_code(manager, "1", session_id="s")).result.environment_recreated
    await wait_container_count(engine, manager, 1)


@pytest.mark.parametrize("files", [{}, {"in.txt": b"x"}])
async def test_kernel_whose_guest_was_stopped_between_calls_is_replaced_and_announced(
    manager: SessionManager,
    engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, bytes],
) -> None:
    monkeypatch.setattr(kernel_module, "PING_TIMEOUT_S", 1.0)
    code = (
        "import os, signal, threading\n"
        "threading.Timer(0.3, lambda: os.kill(os.getppid(), signal.SIGSTOP)).start(); x = 1"
    )
    await run_code(manager, code, session_id="s")
    [found] = await engine.list_containers({OWNER_LABEL: manager.owner})
    async with asyncio.timeout(PATIENCE_S), aiodocker.Docker() as docker:
        while not await _has_stopped_process(docker, found.id):  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(0.05)
    ran = await run_code(
        manager,
        "print(open('in.txt').read())\n" * len(files) + "'x' in globals()",
        session_id="s",
        files=files,
    )
    assert (ran.result.success, ran.result.result) == (True, "False")
    assert ran.result.environment_recreated
    assert [info.id for info in await engine.list_containers({OWNER_LABEL: manager.owner})] != [found.id]
    await wait_container_count(engine, manager, 1)


async def _has_stopped_process(docker: aiodocker.Docker, container_id: str) -> bool:
    top = await docker._query_json(f"containers/{container_id}/top", params={"ps_args": "-eo pid,stat"})
    return any(process[1].startswith("T") for process in top["Processes"])


async def test_limits_of_a_kept_kernel_are_those_of_its_first_call(shared: SessionManager) -> None:
    small = Limits(memory_bytes=512 * MIB, pids=64)
    await run_code(shared, "1", session_id="small", limits=small)
    ran = await run_code(shared, "1", session_id="small", limits=small)
    assert ran.result.success
    assert (await run_code(shared, "2", session_id="small")).result.success
    with pytest.raises(ConfigurationError, match=r"memory_bytes.*another session_id"):
        await run_code(shared, "1", session_id="small", limits=Limits(memory_bytes=256 * MIB))
    assert (await run_code(shared, "3", session_id="small")).result.success


async def test_kept_kernel_of_another_image_is_refused(shared: SessionManager) -> None:
    await run_code(shared, "1", session_id="a")
    with pytest.raises(ConfigurationError, match="names a kernel of image 'python'"):
        await run_code(shared, "1", session_id="a", tool=CodeInterpreterTool(image="aeolus/python:latest"))


async def test_quota_counts_sessions_that_run(engine: DockerEngine) -> None:
    async with SessionManager(max_sessions=1) as manager:
        async with await open_code(
            manager, "print('on', flush=True)\nwhile True: pass", session_id="s"
        ) as session:
            await read_until(session, "on")
            with pytest.raises(QuotaExceeded):
                await open_code(manager, "1")
            assert await container_count(engine, manager) == 1
        assert (await run_code(manager, "1", session_id="s")).result.success


async def test_manager_that_closes_while_code_runs_leaves_nothing(engine: DockerEngine) -> None:
    async with SessionManager() as manager:
        loop = "print('on', flush=True)\nwhile True: pass"
        kept = await open_code(manager, loop, session_id="s")
        single = await open_code(manager, loop)
        for session in (kept, single):
            await read_until(session, "on")
        waiting = asyncio.ensure_future(open_code(manager, "1", session_id="s"))  # noqa: TID251
        async with asyncio.timeout(PATIENCE_S):
            await manager.aclose()
        assert await container_count(engine, manager) == 0
        for session in (kept, single):
            assert (await finish(session)).status.reason == "cancelled"
        with pytest.raises(SessionClosed):
            await waiting


async def test_cancelled_opening_leaves_nothing(engine: DockerEngine) -> None:
    async with SessionManager() as manager:
        for delay_s in (0.0, 0.05, 0.2, 0.4):
            opening = asyncio.ensure_future(open_code(manager, "1", session_id=f"s{delay_s}"))  # noqa: TID251
            await asyncio.wait([opening], timeout=delay_s)
            opening.cancel()
            await asyncio.wait([opening])
        assert (await run_code(manager, "1")).result.success
    assert await container_count(engine, manager) == 0


async def test_language_without_a_kernel_is_refused_with_the_list(shared: SessionManager) -> None:
    with pytest.raises(ConfigurationError, match=r"'cobol'.*python"):
        await open_code(shared, "1", language="cobol")


async def test_missing_grant_is_refused_before_anything_happens() -> None:
    async with SessionManager(grants=Grants()) as manager:
        with pytest.raises(CapabilityDenied):
            await manager.open(CodeInterpreterTool(), CodeInterpreterInput(code="1"))
        assert manager._host._launcher is None


async def test_stale_image_is_named(shared: SessionManager) -> None:
    with pytest.raises(
        ImageNotFound, match=r"aeolus/python:0000.*out of date: aeolus/python:.*images build python"
    ):
        await open_code(shared, "1", tool=CodeInterpreterTool(image="aeolus/python:0000"))


async def test_no_network_in_the_kernel(shared: SessionManager) -> None:
    code = (
        "import socket\nprint([name for _, name in socket.if_nameindex()])\n"
        "try: socket.create_connection(('192.0.2.1', 80), 2)\nexcept OSError as error: print(error.errno)\n"
        "try: socket.getaddrinfo('example.com', 80)\nexcept OSError as error: print('no names')"
    )
    ran = await run_code(shared, code, session_id="a")
    assert ran.text() == "['lo']\n101\nno names\n"
