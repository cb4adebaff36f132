"""What a command prints arrives, whole, in time and in bounded memory."""

import asyncio

import pytest

from aeolus_sandbox import Buffer, LimitName, Limits, Policy, SessionManager, Window
from aeolus_sandbox.limits import MIB
from tests.integration.running import (
    PATIENCE_S,
    open_command,
    read_rest,
    read_until,
    resident_bytes,
    result_of,
    run_command,
)

pytestmark = pytest.mark.docker

SPLIT_CHARACTERS = (
    r"printf 'caf\303'; sleep 0.4; printf '\251 \360\237'; sleep 0.4; printf '\230\200\n'; printf 'x\376y\n'"
)


@pytest.mark.parametrize("tty", [True, False])
async def test_character_split_over_two_writes_arrives_whole(manager: SessionManager, tty: bool) -> None:
    async with await open_command(manager, SPLIT_CHARACTERS, tty=tty) as session:
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
        end = "\r\n" if tty else "\n"
        assert "".join(chunk.text for chunk in chunks) == f"café 😀{end}x\ufffdy{end}"
        assert not any(chunk.text.endswith("\ufffd") for chunk in chunks)
        assert result.invalid_bytes == 1
        raw = b"caf\xc3\xa9 \xf0\x9f\x98\x80\nx\xfey\n".replace(b"\n", end.encode())
        assert b"".join(chunk.data for chunk in chunks) == raw
        assert await session.read_range(0, len(raw)) == raw
        assert b"".join([await session.read_range(*chunk.span) for chunk in chunks]) == raw
        assert len(chunks) >= 3


async def test_lone_lead_byte_at_the_end_is_one_replacement_character(manager: SessionManager) -> None:
    outcome = await run_command(manager, r"printf 'end\360\237'", tty=False)
    assert outcome.text == "end\ufffd"
    assert outcome.stdout == b"end\xf0\x9f"
    assert outcome.result.invalid_bytes == 1


@pytest.mark.slow
@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("wait_ms", [0, 50, 600])
async def test_process_that_ends_at_once_gives_its_output_and_code(
    manager: SessionManager, tty: bool, wait_ms: int
) -> None:
    async def quick() -> tuple[str, int | None]:
        session = await open_command(manager, "echo quick; exit 9", tty=tty)
        await asyncio.sleep(wait_ms / 1000)
        async with session:
            text = await read_rest(session)
            return text.strip(), (await result_of(session)).exit_code

    outcomes = []
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            batch = [group.create_task(quick()) for _ in range(5)]
        outcomes += [task.result() for task in batch]
    assert outcomes == [("quick", 9)] * 25


async def test_output_after_the_exit_is_kept_until_it_is_read(manager: SessionManager) -> None:
    session = await open_command(manager, "seq 1 2000; exit 4", tty=False)
    assert (await result_of(session)).exit_code == 4
    assert (await read_rest(session)).split() == [str(n) for n in range(1, 2001)]
    await session.aclose()


async def test_pipes_keep_stdout_and_stderr_apart(manager: SessionManager) -> None:
    outcome = await run_command(manager, "echo out; echo err >&2; echo more", tty=False)
    assert outcome.stdout == b"out\nmore\n"
    assert outcome.stderr == b"err\n"
    assert outcome.result.stdout_bytes == 9
    assert outcome.result.stderr_bytes == 4


async def test_terminal_has_one_stream_and_programs_see_a_terminal(manager: SessionManager) -> None:
    on_terminal = await run_command(
        manager, "test -t 0 && test -t 1 && test -t 2 && echo tty $TERM; echo err >&2"
    )
    assert on_terminal.text == "tty xterm-256color\r\nerr\r\n"
    assert {chunk.stream for chunk in on_terminal.chunks} == {"stdout"}
    on_pipes = await run_command(
        manager, "test -t 0 || test -t 1 || test -t 2 || echo pipes ${TERM-none}", tty=False
    )
    assert on_pipes.stdout == b"pipes none\n"


async def test_nothing_of_the_launch_is_in_the_output(manager: SessionManager) -> None:
    for tty in (True, False):
        outcome = await run_command(manager, ("true",), tty=tty, env={"SECRET": "x"}, files={"a": b"y\n"})
        assert outcome.stdout == b""
        assert outcome.stderr == b""
        assert "no output" in outcome.result.as_text()


async def test_dot_without_a_newline_arrives_while_the_command_runs(manager: SessionManager) -> None:
    session = await open_command(manager, "printf .; read -r line")
    assert await read_until(session, ".") == "."
    assert session.status is None
    await session.aclose()


@pytest.mark.parametrize("tty", [True, False])
async def test_huge_line_arrives_in_bounded_chunks_the_first_before_the_end(
    manager: SessionManager, tty: bool
) -> None:
    command = "head -c 5000000 /dev/zero | tr '\\0' x; read -r line"
    session = await open_command(manager, command, tty=tty)
    lengths: list[int] = []
    async with asyncio.timeout(PATIENCE_S):
        while sum(lengths) < 5_000_000:
            chunk = await session.next_chunk()
            assert chunk is not None
            assert set(chunk.data) == {ord("x")}
            lengths.append(len(chunk.data))
    assert session.status is None
    assert sum(lengths) == 5_000_000
    assert max(lengths) <= 64 * 1024
    await session.aclose()


@pytest.mark.parametrize("policy", [Buffer(), Window(max_chunks=10)], ids=["buffer", "window"])
async def test_endless_output_is_bounded_on_the_host(manager: SessionManager, policy: Policy) -> None:
    before = resident_bytes()
    session = await open_command(
        manager,
        "yes 0123456789abcdef",
        tty=False,
        timeout_s=3,
        policy=policy,
        limits=Limits(output_bytes=64 * 1024),
    )
    read_bytes = dropped_bytes = 0
    async with asyncio.timeout(PATIENCE_S):
        async for chunk in session:  # as fast as it goes
            read_bytes += len(chunk.data)
            dropped_bytes += chunk.dropped_bytes
    result = await result_of(session)
    assert resident_bytes() - before < 50 * MIB
    if isinstance(policy, Buffer):
        assert (result.status.reason, result.status.limit_hit) == ("output_limit", LimitName.OUTPUT_BYTES)
        assert read_bytes <= 64 * 1024 < result.stdout_bytes
    else:
        assert (result.status.reason, result.status.limit_hit) == ("timed_out", LimitName.WALL_TIME)
        assert read_bytes + dropped_bytes == result.stdout_bytes
    assert len(result.output) < 10_000
    await session.aclose()


async def test_slow_reader_of_a_window_is_told_exactly_what_it_missed(manager: SessionManager) -> None:
    session = await open_command(
        manager,
        "seq 1 200000; echo end",
        tty=False,
        policy=Window(max_chunks=2),
    )
    result = await result_of(session)
    window = session.context_window()
    assert window.limit_chunks == 2
    assert window.chunks_held <= 2
    assert window.chunks_dropped > 0
    chunks = [chunk async for chunk in session]
    seen = sum(len(chunk.data) for chunk in chunks)
    missed = sum(chunk.dropped_bytes for chunk in chunks)
    assert seen + missed == result.stdout_bytes
    assert missed == window.bytes_dropped == session.context_window().bytes_dropped
    assert chunks[-1].text.endswith("end\n")
    # What the window dropped is still held, and can be read by its range.
    assert (await session.read_range(0, 12)) == b"1\n2\n3\n4\n5\n6\n"
    await session.aclose()


async def test_redrawn_progress_bar_is_one_line_of_the_result(manager: SessionManager) -> None:
    outcome = await run_command(
        manager, r"for i in $(seq 1 3000); do printf '\r%d%%' $i; done; echo; printf 'abcdef\rXY\n'"
    )
    assert outcome.result.output == "3000%\nXYcdef\n"
    assert outcome.stdout.count(b"\r") > 3000


async def test_idle_command_ends_and_one_that_goes_on_printing_does_not(manager: SessionManager) -> None:
    idle = await run_command(manager, "echo once; sleep 300; :", limits=Limits(idle_time_s=1))
    assert idle.text == "once\r\n"
    assert (idle.result.status.reason, idle.result.status.limit_hit) == ("timed_out", LimitName.IDLE_TIME)
    busy = await run_command(
        manager, "for i in $(seq 1 12); do echo $i; sleep 0.5; done", limits=Limits(idle_time_s=5)
    )
    assert busy.result.status.ok
    assert busy.result.duration_ms > 5000
