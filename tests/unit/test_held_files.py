"""A container is held for its files as long as somebody may want them, and no longer; what is saved is whole."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.errors import ArtifactError
from aeolus_sandbox.streaming.held_files import HeldFiles


class _Files:
    """Files of a tool, as the test says."""

    def __init__(self, *pieces: bytes, need_container: bool = True) -> None:
        self.pieces = pieces
        self.need_container = need_container
        self.asked: list[tuple[str, int]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.failure: Exception | None = None
        self.readers = 0

    async def read(self, path: str, *, max_bytes: int) -> AsyncGenerator[bytes, None]:
        self.asked.append((path, max_bytes))
        self.readers += 1
        assert self.readers == 1
        try:
            for piece in self.pieces:
                yield piece
            await self.may_end.wait()
            if self.failure is not None:
                raise self.failure
        finally:
            self.readers -= 1


@pytest.fixture
async def tasks() -> AsyncIterator[BackgroundTasks]:
    tasks = BackgroundTasks()
    yield tasks
    await tasks.aclose(timeout_s=5)


async def test_nothing_is_held_where_nothing_needs_the_container(tasks: BackgroundTasks) -> None:
    async with asyncio.timeout(5):
        await HeldFiles(lambda: None, tasks).wait_unneeded()
        kept = HeldFiles(lambda: _Files(b"1", need_container=False), tasks)
        await kept.wait_unneeded()
    assert await kept.read("a", max_bytes=1) == b"1"  # it has its files elsewhere
    with pytest.raises(ArtifactError, match="holds no files"):
        await HeldFiles(lambda: None, tasks).read("a", max_bytes=1)


async def test_a_container_is_held_until_the_session_is_closed(tasks: BackgroundTasks) -> None:
    files = _Files(b"12", b"3")
    held = HeldFiles(lambda: files, tasks)
    holding = asyncio.ensure_future(held.wait_unneeded())  # noqa: TID251
    assert await held.read("a", max_bytes=5) == b"123"
    assert files.asked == [("a", 5)]
    assert not holding.done()
    held.close()
    async with asyncio.timeout(5):
        await holding
    with pytest.raises(ArtifactError, match="before it is closed"):
        await held.read("a", max_bytes=5)


async def test_a_container_is_not_held_for_ever_but_through_a_fetch(tasks: BackgroundTasks) -> None:
    files = _Files(b"1")
    held = HeldFiles(lambda: files, tasks, hold_s=0.05)
    files.may_end.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        fetching = group.create_task(held.read("a", max_bytes=5))
        await asyncio.sleep(0)
        holding = group.create_task(held.wait_unneeded())
        await asyncio.sleep(0.2)
        assert not holding.done()
        files.may_end.set()
    assert fetching.result() == b"1"
    with pytest.raises(ArtifactError, match="soon after its end"):
        await held.read("a", max_bytes=5)


async def test_fetches_come_one_after_the_other(tasks: BackgroundTasks) -> None:
    files = _Files(b"1")
    held = HeldFiles(lambda: files, tasks)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(held.read("a", max_bytes=5))
    assert len(files.asked) == 5


async def test_a_saved_file_replaces_another_when_it_is_whole(tasks: BackgroundTasks, tmp_path: Path) -> None:
    files = _Files(b"new", b" content")
    held, to = HeldFiles(lambda: files, tasks), tmp_path / "result"
    to.write_bytes(b"old")
    files.may_end.clear()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        saving = group.create_task(held.save("a", to, max_bytes=100))
        await asyncio.sleep(0.05)
        assert to.read_bytes() == b"old"
        files.may_end.set()
    assert saving.result() == 11
    assert to.read_bytes() == b"new content"
    assert list(tmp_path.iterdir()) == [to]


async def test_a_file_that_breaks_off_leaves_what_was_there(tasks: BackgroundTasks, tmp_path: Path) -> None:
    files = _Files(b"half")
    held, to = HeldFiles(lambda: files, tasks), tmp_path / "result"
    to.write_bytes(b"old")
    files.failure = ArtifactError("it became shorter")
    with pytest.raises(ArtifactError, match="shorter"):
        await held.save("a", to, max_bytes=100)
    files.may_end.clear()
    for delay_s in (0.0, 0.001, 0.05):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(held.save("a", to, max_bytes=100), delay_s)
    assert [(path, path.read_bytes()) for path in tmp_path.iterdir()] == [(to, b"old")]


async def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(
    tasks: BackgroundTasks, tmp_path: Path
) -> None:
    (tmp_path / "target").write_bytes(b"untouched")
    (tmp_path / "link").symlink_to("target")
    held = HeldFiles(lambda: _Files(b"new"), tasks)
    await held.save("a", tmp_path / "link", max_bytes=100)
    assert (tmp_path / "target").read_bytes() == b"untouched"
    assert not (tmp_path / "link").is_symlink()
    with pytest.raises(IsADirectoryError):
        await held.save("a", tmp_path, max_bytes=100)
