"""What untrusted code may use of the host is bounded, and hitting a bound is told as data."""

import asyncio
import time

import pytest

from aeolus_sandbox import (
    Buffer,
    CommandPolicy,
    LimitName,
    Limits,
    Policy,
    SessionManager,
    TerminalTool,
    Window,
)
from aeolus_sandbox.engine.base import SESSION_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.limits import MIB
from tests.integration.running import (
    open_command,
    read_until,
    resident_bytes,
    result_of,
    run_command,
    wait_until_none,
)

pytestmark = pytest.mark.docker

FORK_BOMB = "f(){ f|f& }; f; sleep 300"
MEMORY_BOMB = "x = []\nwhile True: x.append(bytearray(5_000_000))"


async def test_fork_bomb_hits_pids_limit(manager: SessionManager, engine: DockerEngine) -> None:
    session = await open_command(
        manager,
        ("bash", "-c", FORK_BOMB),
        tool=TerminalTool(command_policy=CommandPolicy.ALLOW),
        limits=Limits(pids=64),
    )
    await read_until(session, "Resource temporarily unavailable")
    # The host goes on working: a neighbour starts and ends while the bomb is at its limit.
    neighbour = await run_command(manager, "echo alive")
    assert neighbour.text == "alive\r\n"
    began = time.monotonic()
    async with asyncio.timeout(30):
        await session.cancel()
        result = await session.finalize()
        await session.aclose()
    assert time.monotonic() - began < 15
    assert result.status.reason == "cancelled"
    assert await engine.list_containers({SESSION_LABEL: session.id}) == []


async def test_pids_limit_counts_threads_too(manager: SessionManager) -> None:
    code = (
        "import threading\nn = 0\nstop = threading.Event()\n"
        "try:\n    while n < 500:\n        threading.Thread(target=stop.wait).start(); n += 1\n"
        "except RuntimeError as error: print(n, error)\nstop.set()"
    )
    outcome = await run_command(manager, ("python3", "-c", code), tty=False, limits=Limits(pids=32))
    started = int(outcome.text.split()[0])
    assert started < 32
    assert outcome.result.status.ok


@pytest.mark.parametrize("tty", [True, False])
async def test_memory_bomb_ends_as_out_of_memory(manager: SessionManager, tty: bool) -> None:
    outcome = await run_command(
        manager,
        ("python3", "-c", MEMORY_BOMB),
        tty=tty,
        limits=Limits(memory_bytes=96 * MIB),
    )
    assert outcome.result.status.reason == "out_of_memory"
    assert outcome.result.status.limit_hit is LimitName.MEMORY
    assert outcome.result.exit_code == 137


async def test_child_killed_for_memory_is_told_although_the_run_survives(manager: SessionManager) -> None:
    outcome = await run_command(
        manager,
        f"python3 -c '{MEMORY_BOMB}'; echo rc=$?",
        limits=Limits(memory_bytes=96 * MIB),
    )
    assert "rc=137" in outcome.text
    assert outcome.result.status.reason == "exited"
    assert outcome.result.exit_code == 0
    assert outcome.result.status.limit_hit is LimitName.MEMORY


async def test_swap_is_not_a_way_around_the_memory_limit(manager: SessionManager) -> None:
    # The files of a tmpfs are memory too: filling both of them and the heap must not exceed the one limit.
    outcome = await run_command(
        manager,
        "head -c 30000000 /dev/zero > /workspace/a; "
        "python3 -c 'x = bytearray(90_000_000); print(\"had it\")'; echo rc=$?",
        limits=Limits(memory_bytes=96 * MIB, disk_bytes=40 * MIB, tmp_bytes=1 * MIB),
    )
    assert "had it" not in outcome.text
    assert outcome.result.status.limit_hit is LimitName.MEMORY


@pytest.mark.parametrize(("folder", "size_mib"), [("/workspace", 8), ("/tmp", 4), ("/dev/shm", 16)])
async def test_full_disk_is_an_error_inside_and_the_run_goes_on(
    manager: SessionManager, folder: str, size_mib: int
) -> None:
    outcome = await run_command(
        manager,
        f"cd {folder}; for i in $(seq 1 40); do head -c 1048576 /dev/zero > f$i || break; done; "
        "cat f* | wc -c; rm f*; echo again > g; cat g",
        tty=False,
        limits=Limits(disk_bytes=8 * MIB, tmp_bytes=4 * MIB),
    )
    assert b"No space left on device" in outcome.stderr
    written, again = outcome.stdout.split()
    assert int(written) <= size_mib * MIB
    assert again == b"again"
    assert outcome.result.status.ok


async def test_file_larger_than_the_disk_limit_cannot_be_written(manager: SessionManager) -> None:
    outcome = await run_command(
        manager,
        "ulimit -f; bash -c 'head -c 9000000 /dev/zero > big'; echo rc=$?; stat -c %s big; "
        "ulimit -f unlimited || echo still",
        tty=False,
        limits=Limits(disk_bytes=8 * MIB),
    )
    blocks, code, size, still = outcome.stdout.split()
    assert int(blocks) * 512 <= 8 * MIB
    assert code != b"rc=0"
    assert int(size) <= 8 * MIB
    assert still == b"still"


async def test_sparse_file_does_not_exceed_the_disk_limit(manager: SessionManager) -> None:
    outcome = await run_command(
        manager, "truncate -s 1G big; echo rc=$?", tty=False, limits=Limits(disk_bytes=8 * MIB)
    )
    assert b"rc=0" not in outcome.stdout


async def test_many_empty_files_hit_the_memory_limit_and_not_the_host(manager: SessionManager) -> None:
    # Inodes of a tmpfs are kernel memory; they must be counted or bounded, or a flood of them eats the host's.
    code = (
        "import os\nn = 0\ntry:\n    while n < 5_000_000:\n        os.close(os.open(f'f{n}', os.O_CREAT)); n += 1\n"
        "except OSError as error: print(n, error.strerror)"
    )
    outcome = await run_command(
        manager,
        ("python3", "-c", code),
        tty=False,
        limits=Limits(memory_bytes=64 * MIB, disk_bytes=8 * MIB, tmp_bytes=1 * MIB),
    )
    if outcome.result.status.reason == "exited":
        assert b"No space left on device" in outcome.stdout
    else:
        assert outcome.result.status.reason == "out_of_memory"


async def test_open_files_are_limited(manager: SessionManager) -> None:
    code = (
        "import os, resource\nn = 0\ntry:\n    while True: os.open('/dev/null', os.O_RDONLY); n += 1\n"
        "except OSError as error: print(n, error.strerror)\n"
        "try: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))\nexcept ValueError: print('not raised')"
    )
    outcome = await run_command(manager, ("python3", "-c", code), tty=False, limits=Limits(open_files=64))
    first, second = outcome.text.splitlines()
    assert int(first.split()[0]) < 64
    assert "Too many open files" in first
    assert second == "not raised"


async def test_cpu_limit_slows_a_busy_loop(manager: SessionManager) -> None:
    code = (
        "import time\nbegan, used = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - began < 3: pass\n"
        "print((time.process_time() - used) / (time.monotonic() - began))"
    )
    outcome = await run_command(manager, ("python3", "-c", code), tty=False, limits=Limits(cpus=0.25))
    assert float(outcome.text) < 0.5


@pytest.mark.parametrize("tty", [True, False])
async def test_output_flood_with_window_runs_to_its_time_limit_in_flat_memory(
    manager: SessionManager, tty: bool
) -> None:
    session = await open_command(
        manager,
        "yes 0123456789abcdef",
        tty=tty,
        timeout_s=3,
        policy=Window(max_chunks=4),
        limits=Limits(output_bytes=64 * 1024),
    )
    before = resident_bytes()
    result = await result_of(session)
    grown = resident_bytes() - before
    assert grown < 50 * MIB
    assert result.status.reason == "timed_out"
    assert result.status.limit_hit is LimitName.WALL_TIME
    assert result.stdout_bytes > 64 * 1024
    window = session.context_window()
    assert window.bytes_dropped > 0
    assert window.chunks_held <= 4
    left = [chunk async for chunk in session]
    assert left[0].dropped_bytes == window.bytes_dropped
    assert sum(len(chunk.data) for chunk in left) <= 64 * 1024
    await session.aclose()


@pytest.mark.parametrize("tty", [True, False])
async def test_output_flood_with_buffer_ends_as_output_limit(manager: SessionManager, tty: bool) -> None:
    before = resident_bytes()
    outcome = await run_command(
        manager,
        "yes 0123456789abcdef",
        tty=tty,
        policy=Buffer(),
        limits=Limits(output_bytes=64 * 1024),
    )
    assert resident_bytes() - before < 50 * MIB
    assert outcome.result.status.reason == "output_limit"
    assert outcome.result.status.limit_hit is LimitName.OUTPUT_BYTES
    assert 0 < len(outcome.stdout) <= 64 * 1024
    assert outcome.result.stdout_bytes >= len(outcome.stdout)


@pytest.mark.slow
async def test_large_output_goes_to_disk_and_not_to_memory(manager: SessionManager) -> None:
    before = resident_bytes()
    peak = 0
    session = await open_command(
        manager,
        "head -c 400000000 /dev/zero | tr '\\0' x",
        tty=False,
        policy=Window(max_chunks=100),
        limits=Limits(output_bytes=64 * MIB),
    )
    async with asyncio.timeout(100):
        while session.status is None:
            peak = max(peak, resident_bytes())
            await asyncio.sleep(0.05)
    assert peak - before < 60 * MIB
    result = await session.finalize()
    assert result.status.ok
    assert result.stdout_bytes == 400_000_000
    await session.aclose()


async def test_wall_time_ends_what_ignores_every_signal(
    manager: SessionManager, engine: DockerEngine
) -> None:
    outcome = await run_command(
        manager,
        "trap '' HUP INT QUIT TERM USR1 USR2; while :; do sleep 300; done",
        timeout_s=1,
    )
    assert outcome.result.status.reason == "timed_out"
    assert outcome.result.status.limit_hit is LimitName.WALL_TIME
    assert outcome.result.exit_code == 137
    await wait_until_none(engine, {"aeolus.owner": manager.owner}, within_s=15)


async def test_call_cannot_widen_a_limit(manager: SessionManager) -> None:
    policies: list[Policy] = [Window(), Buffer()]
    for policy in policies:
        with pytest.raises(ValueError, match="can only be narrowed"):
            await open_command(manager, "true", limits=Limits(pids=4096), policy=policy)
    assert manager.open_sessions == []
