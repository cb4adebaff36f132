"""Many files with few descriptors."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.logs.writers import Following, Log


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """`ulimit -n 64`, above what the test process has open already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
@pytest.mark.parametrize("events", [True, False])
def test_two_hundred_files_with_few_descriptors(tmp_path: Path, events: bool) -> None:
    logs = [Log(tmp_path, f"/logs/{number:03}.log") for number in range(200)]
    for number, log in enumerate(logs):
        log.write(f"old {number}")
    with Following(tmp_path, patterns=["/logs/*.log"], uses_events=events) as tail:
        assert sorted(tail.read()) == sorted(f"old {number}" for number in range(200))
        for number, log in enumerate(logs):
            log.write(f"new {number}")
        assert sorted(tail.look()) == sorted(f"new {number}" for number in range(200))
        for number, log in enumerate(logs):
            log.write(f"last {number}")
            log.rename()
            log.write(f"first {number}")
        lines = tail.wait(3)
        assert sorted(lines) == sorted(
            f"{word} {number}" for number in range(200) for word in ("last", "first")
        )
        assert all(lines.index(f"last {number}") < lines.index(f"first {number}") for number in range(200))
        assert tail.wait(70) == []
        assert not {"lost", "limit", "unreadable"} & set(tail.kinds())


@pytest.mark.usefixtures("few_descriptors")
def test_large_files_with_few_descriptors(tmp_path: Path) -> None:
    for number in range(120):
        Log(tmp_path, f"/logs/{number:03}.log").write(*(f"{number} {line}" for line in range(50)))
    with Following(tmp_path, patterns=["/logs/*.log"], follow=False) as tail:
        assert len(set(tail.read(max_bytes=100))) == 120 * 50
        assert tail.files.is_finished
        assert tail.notices == []


def test_limit_is_told_when_no_file_can_be_opened(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write("one")
    with Following(tmp_path, "/logs/other.log") as tail:
        tail.files._catalog.open_files._most = 0
        Log(tmp_path, "/logs/other.log").write("late")
        assert tail.wait(3) == []
        assert [(notice.kind, notice.path) for notice in tail.told("limit")] == [("limit", "/logs/other.log")]
        tail.files._catalog.open_files._most = 5
        assert tail.wait(1) == ["late"]
