"""What nginx writes and logrotate rotates, followed meanwhile: every request's line comes once, whole and in order."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_docker.plugin import Services

from aeolus_sandbox import SessionManager, StreamingToolSession
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.engine.base import OWNER_LABEL, SESSION_LABEL
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogFlag,
    LogLevel,
    LogNoticeKind,
    LogResult,
    LogTailerInput,
    LogTailerTool,
)
from tests.integration.running import PATIENCE_S
from tests.integration.writers import building
from tests.integration.writers.project import (
    COMPOSE_FILE,
    Site,
    Writers,
    compose_command,
    nothing_left,
)

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("writers"),
]

TOOL: Final = LogTailerTool()
ADM: Final = 4
"""The number of Debian's group `adm`, to which logs belong."""
NUMBER: Final = re.compile(r"/n/(\d+)")
PLAIN_AGENT: Final = "Mozilla/5.0 (X11; Linux x86_64) Probe/3.1"
AGENTS: Final = {
    # What else than printable ASCII there is, and quotes and backslashes, nginx writes as \xHH: they stand for bytes.
    "combined": (
        PLAIN_AGENT,
        r"Tablet 10\x22 (Linux) \x5Co/",
        r"Z\xC3\xA4hler/1 (f\xC3\xBCr \xC3\x98)",
        r"latin-1 caf\xE9",
        None,
    ),
    "json": (PLAIN_AGENT, r'Tablet 10" (Linux) \o/', "Zähler/1 (für Ø)", "latin-1 caf\ufffd", ""),
}
"""What the clients send, in turn, as it is in a log."""
CLIENTS: Final = ("192.0.2.7", "2001:db8::7f:1", "198.51.100.23")
EXPECTED: Final = {LogNoticeKind.ROTATED, LogNoticeKind.TRUNCATED, LogNoticeKind.APPEARED, LogNoticeKind.GONE}
"""What is told of a rotation; anything else (`lost`, `unreadable`) is trouble."""
Session = StreamingToolSession[LogChunk, LogResult]

# The writers, started by pytest-docker; its fixtures have these names.


@pytest.fixture(scope="session")
def docker_compose_command() -> str:
    return compose_command()


@pytest.fixture(scope="session")
def docker_compose_file() -> str:
    return str(COMPOSE_FILE)


@pytest.fixture(scope="session")
def docker_cleanup() -> list[str]:
    return ["down --volumes --timeout 2"]


@pytest.fixture(scope="session")
def writers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writers").resolve()
    for name in ("log", "control"):
        (folder / name).mkdir(mode=0o755)
    return folder


@pytest.fixture(scope="session")
def docker_setup(docker_compose_project_name: str, writers_folder: Path) -> Iterator[list[str]]:
    with pytest.MonkeyPatch.context() as patch, nothing_left(docker_compose_project_name):
        patch.setenv("WRITERS_IMAGE", building.build())
        patch.setenv("WRITERS_FOLDER", str(writers_folder))
        yield ["up --detach --no-build"]


@pytest.fixture(scope="session")
def writers(docker_services: Services, writers_folder: Path) -> Writers:
    """Give the container with nginx and logrotate."""
    opened = Writers(writers_folder)
    docker_services.wait_until_responsive(opened.socket.is_socket, timeout=PATIENCE_S, pause=0.05)
    return opened


@pytest.fixture
async def manager(engine: DockerEngine, writers: Writers, tmp_path: Path) -> AsyncIterator[SessionManager]:
    """Give a manager that may read the logs of the writers, as a member of their group."""
    grants = Grants.of(ReadLogs(roots=[str(writers.logs)], groups=[ADM]))
    async with SessionManager(grants=grants, state_path=tmp_path / "state.db") as opened:
        yield opened
    assert await engine.list_containers({OWNER_LABEL: opened.owner}) == []


# What is read.


async def open_log(manager: SessionManager, path: object, *, key: str | None = None, **how: Any) -> Session:
    tool_input = LogTailerInput(path=str(path), follow=True, **how)
    async with asyncio.timeout(PATIENCE_S):
        return await manager.open(TOOL, tool_input, idempotency_key=key)


async def read_until(session: Session, is_enough: Callable[[list[LogChunk]], bool]) -> list[LogChunk]:
    """Read until what has come is enough; notices are left out, and one of a loss or of trouble fails."""
    seen: list[LogChunk] = []
    async with asyncio.timeout(PATIENCE_S):
        while not is_enough(seen):
            chunk = await session.next_chunk()
            assert chunk is not None, "it ended"
            if chunk.notice is None:
                seen.append(chunk)
            else:
                assert chunk.notice.kind in EXPECTED, chunk.as_text()
    return seen


def numbers(chunks: Sequence[LogChunk]) -> list[int]:
    """Return the numbers of the requests."""
    return [int(found[1]) if (found := NUMBER.search(chunk.raw)) else -1 for chunk in chunks]


def is_last(seen: list[LogChunk]) -> bool:
    return bool(seen) and "/last/n/" in seen[-1].raw


def enough(count: int) -> Callable[[list[LogChunk]], bool]:
    return lambda seen: len(seen) >= count or is_last(seen)


async def read_under_load(
    manager: SessionManager, path: object, site: Site, **load: Any
) -> tuple[list[LogChunk], LogResult]:
    """Follow a log while requests are served and logs rotated, to the last line."""
    await site.serve(1)
    async with await open_log(manager, path) as session, asyncio.TaskGroup() as tasks:
        seen = await read_until(session, bool)  # it has begun with what was there
        tasks.create_task(site.serve_and_rotate(**load))
        seen += await read_until(session, is_last)
        await session.cancel()
        return seen, await session.finalize()


def check_order(chunks: Sequence[LogChunk], files: Sequence[Sequence[int]]) -> None:
    """Check that all lines of the files came, none twice, and those of each file in its order."""
    found = numbers(chunks)
    assert max(Counter(found).values()) == 1
    for file in files:
        held = set(file)
        assert [number for number in found if number in held] == file


def check_all(chunks: Sequence[LogChunk], files: Sequence[Sequence[int]]) -> None:
    """Check that each request's line came, once and in its order, through all files."""
    check_order(chunks, files)
    assert numbers(chunks) == list(range(1, len(chunks) + 1))


# Rotations.

DATED: Final = ("dateext", "dateformat -%Y%m%d-%s")
PACKED_LATER: Final = ("compress", "delaycompress")
LOAD: Final[Mapping[str, Any]] = {"rotations": 4, "at_least": 300}
LONG_LOAD: Final[Mapping[str, Any]] = {"rotations": 8, "at_least": 200, "per_second": 400}


@pytest.mark.parametrize("form", ["combined", "json"])
@pytest.mark.parametrize(
    "directives",
    [(), PACKED_LATER, ("compress",), (*DATED, *PACKED_LATER)],
    ids=["plain", "packed later", "packed at once", "dated"],
)
async def test_renamed_logs_give_each_request_once_and_in_order(
    manager: SessionManager, writers: Writers, directives: tuple[str, ...], form: str
) -> None:
    site = await writers.begin(form=form, directives=directives)
    seen, result = await read_under_load(manager, site.access_log, site, **LOAD)
    check_all(seen, await site.logged())
    assert len(seen) > 5 * 300
    assert (result.lines_read, result.lines_unparsed) == (len(seen), 0)
    assert result.rotations == 4


async def test_logs_of_several_workers_give_each_request_once_and_in_their_order(
    manager: SessionManager, writers: Writers
) -> None:
    """Of several workers, one may go on with the old file while another has reopened its log already."""
    site = await writers.begin(workers=3, directives=PACKED_LATER)
    seen, result = await read_under_load(manager, site.access_log, site, **LOAD)
    check_order(seen, await site.logged())
    assert sorted(numbers(seen)) == list(range(1, len(seen) + 1))
    assert result.lines_unparsed == 0
    assert result.rotations == 4


@pytest.mark.parametrize(
    "directives", [(), ("compress",), (*DATED, *PACKED_LATER)], ids=["plain", "packed at once", "dated"]
)
async def test_copied_and_truncated_logs_give_each_request_once_and_in_order(
    manager: SessionManager, writers: Writers, directives: tuple[str, ...]
) -> None:
    """Nothing is written between the copy and the truncation."""
    site = await writers.begin(directives=("copytruncate", *directives))
    seen, result = await read_under_load(manager, site.access_log, site, pauses=True, **LOAD)
    assert numbers(seen) == list(range(1, len(seen) + 1)) == [n for file in await site.logged() for n in file]
    assert result.lines_unparsed == 0
    assert result.rotations == 4


async def test_what_copytruncate_has_kept_comes_once_and_in_order(
    manager: SessionManager, writers: Writers
) -> None:
    """What is written between the copy and the truncation is in no file: only who has read it by then has it."""
    site = await writers.begin(directives=("copytruncate",))
    seen, _ = await read_under_load(manager, site.access_log, site, **LOAD)
    kept = await site.logged()
    check_order(seen, kept)
    assert all(before < after for before, after in pairwise(numbers(seen)))
    assert numbers(seen)[-1] == kept[-1][-1]


async def test_logs_are_read_as_debian_rotates_them(manager: SessionManager, writers: Writers) -> None:
    """By the rules of its package, with what belongs to `www-data` and can be read by `adm` alone."""
    site = await writers.begin("nginx", debian=True)
    seen, result = await read_under_load(manager, site.access_log, site, rotations=3, at_least=300)
    check_all(seen, await site.logged())
    assert result.rotations == 3
    access_logs = {path.name for path in site.folder.glob("access*")}
    assert access_logs == {"access.log", *(f"access.log.{end}" for end in ("1", "2.gz", "3.gz"))}
    for path in site.folder.iterdir():
        status = path.stat()
        assert (status.st_mode & 0o777, status.st_gid) == (0o640, ADM), path


async def test_logs_of_a_group_that_was_not_granted_are_not_read(writers: Writers) -> None:
    site = await writers.begin()
    await site.serve(5)
    grants = Grants.of(ReadLogs(roots=[str(site.folder)]))
    async with SessionManager(grants=grants) as manager, asyncio.timeout(PATIENCE_S):
        tool_input = LogTailerInput(path=str(site.folder / "*.log"))
        async with await manager.open(TOOL, tool_input) as session:
            told = {(chunk.file, chunk.notice and chunk.notice.kind) async for chunk in session}
    names = ("access.log", "error.log")
    assert told == {(str(site.folder / name), LogNoticeKind.UNREADABLE) for name in names}


# History, and going on.


@pytest.mark.parametrize("directives", [PACKED_LATER, (*DATED, *PACKED_LATER)], ids=["numbered", "dated"])
async def test_late_reader_gets_the_history_by_a_pattern_and_then_what_comes(
    manager: SessionManager, writers: Writers, directives: tuple[str, ...]
) -> None:
    site = await writers.begin(directives=directives)
    for _ in range(3):
        await site.serve(100)
        await site.rotate()
    await site.serve(99)
    pattern = site.folder / "access.log*"
    seen, _ = await read_under_load(manager, pattern, site, rotations=2, at_least=100)
    assert numbers(seen[:400]) == list(range(1, 401))
    check_all(seen, await site.logged())


async def test_reader_goes_on_from_its_cursor_through_rotations(
    manager: SessionManager, writers: Writers
) -> None:
    site = await writers.begin(directives=PACKED_LATER)
    await site.serve(1)
    seen, cursor, sessions = list[LogChunk](), LogCursor(), 0
    async with asyncio.TaskGroup() as tasks:
        while not is_last(seen):
            async with await open_log(manager, site.access_log, from_cursor=cursor) as session:
                seen += await read_until(session, enough(1 if sessions == 0 else 150))
                if sessions == 0:
                    tasks.create_task(site.serve_and_rotate(**LONG_LOAD))
                await session.cancel()
                seen += [chunk async for chunk in session if chunk.notice is None]
                cursor = LogCursor.model_validate_json((await session.finalize()).cursor.model_dump_json())
            sessions += 1
    assert sessions > 3
    check_all(seen, await site.logged())


async def test_killed_reader_goes_on_through_rotations(
    engine: DockerEngine, manager: SessionManager, writers: Writers
) -> None:
    """The line that the reader had in its hands comes again, and no other."""
    site = await writers.begin(directives=PACKED_LATER)
    await site.serve(2)
    key, seen, sessions = new_identifier(), list[LogChunk](), 0
    async with asyncio.TaskGroup() as tasks:
        while not is_last(seen):
            async with await open_log(manager, site.access_log, key=key) as session:
                seen = [*seen[:-1], *await read_until(session, enough(2 if sessions == 0 else 150))]
                if sessions == 0:
                    tasks.create_task(site.serve_and_rotate(**LONG_LOAD))
                [container] = await engine.list_containers({SESSION_LABEL: session.id})
                await engine.remove_container(container.id)
            sessions += 1
    assert sessions > 3
    check_all(seen, await site.logged())


# What the lines say.


@pytest.mark.parametrize("given", ["auto", "the format"])
@pytest.mark.parametrize("form", ["combined", "json"])
async def test_access_lines_are_parsed_whole(
    manager: SessionManager, writers: Writers, form: str, given: str
) -> None:
    site = await writers.begin(form=form)
    await site.serve(30)
    async with await open_log(
        manager, site.access_log, format=form if given != "auto" else "auto"
    ) as session:
        seen = await read_until(session, enough(30))
        await session.cancel()
        assert (await session.finalize()).lines_unparsed == 0
    client, agent = ("host", "user_agent") if form == "combined" else ("client", "agent")
    for number, chunk in enumerate(seen, 1):
        fields = chunk.fields
        assert (fields["status"], fields["bytes"], fields["request"]) == (200, 3, f"GET /n/{number} HTTP/1.1")
        assert (fields[client], fields[agent]) == (CLIENTS[number % 3], AGENTS[form][number % 5])
        assert chunk.timestamp is not None
        assert abs(chunk.timestamp - datetime.now(UTC)) < timedelta(minutes=10)
        assert LogFlag.UNPARSED not in chunk.flags


async def test_error_lines_have_their_levels_through_rotations(
    manager: SessionManager, writers: Writers
) -> None:
    site = await writers.begin()
    await site.serve(1, "/missing")
    async with await open_log(manager, site.folder / "error.log") as session:
        seen = await read_until(session, bool)  # it has begun with what was there
        for _ in range(3):
            await site.serve(5, "/missing")
            await site.serve(6, "/limited")  # of which one a minute is let through
            await site.rotate()
        seen += await read_until(session, lambda more: sum(map(len, of_levels(seen + more))) == 16 + 17 + 3)
        await session.cancel()
        assert (await session.finalize()).lines_unparsed == 0
    missing, limited, told = of_levels(seen)
    assert sorted(numbers(missing)) == [1, *range(2, 7), *range(13, 18), *range(24, 29)]
    assert {chunk.fields["client"] for chunk in missing} == set(CLIENTS)
    for lines, level in (missing, LogLevel.ERROR), (limited, LogLevel.WARNING), (told, LogLevel.NOTICE):
        assert {chunk.level for chunk in lines} == {level}


def of_levels(chunks: Sequence[LogChunk]) -> list[list[LogChunk]]:
    """Return the lines of files that are missing, of requests that were limited, and of reopened logs."""
    texts = ("/missing/n/", "limiting requests", "signal 10 (SIGUSR1) received")
    return [[chunk for chunk in chunks if text in chunk.raw] for text in texts]
