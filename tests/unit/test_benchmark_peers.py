"""The benchmark of peers: what a worker says is heard whole, and nothing is measured of who is not there."""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.peer_process import PeerFailed, PeerProcess, PeerProgram, workers
from benchmarks.peer_results import best_peer, figures, grids
from benchmarks.peers import PROGRAMS
from benchmarks.results import Series
from benchmarks.rounds import Unavailable

MODULE = "tests.unit.peer_worker"
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def _peer(image: str, *, answer_limit_s: float = 30.0) -> AsyncIterator[PeerProcess]:
    peer = PeerProcess([sys.executable, "-m", MODULE, image, "gateway"], answer_limit_s=answer_limit_s)
    try:
        await peer.start()
        yield peer
    finally:
        await peer.aclose()


async def test_worker_says_what_its_peer_can_do() -> None:
    async with _peer("works") as peer:
        assert peer.abilities == {"cold", "command", "output", "burst"}


async def test_what_a_peer_prints_is_no_answer() -> None:
    async with _peer("works") as peer:
        assert (await peer.ask("cold"))["took_ms"] >= 0
        assert (await peer.ask("command"))["took_ms"] >= 0


async def test_life_lasts_until_the_sandbox_has_ended() -> None:
    async with _peer("works") as peer:
        started = [(await peer.ask("cold"))["took_ms"] for _ in range(2)]
        lives = (await peer.ask("lives"))["lives_ms"]
        assert len(lives) == 2
        for life, start in zip(lives, started, strict=True):
            assert life >= start + 50
        assert (await peer.ask("lives"))["lives_ms"] == []


async def test_failure_is_told_and_the_next_question_is_answered() -> None:
    async with _peer("fails") as peer:
        with pytest.raises(PeerFailed, match="no such image"):
            await peer.ask("cold")
        assert (await peer.ask("command"))["took_ms"] >= 0


async def test_burst_counts_what_failed() -> None:
    async with _peer("fails") as peer:
        answer = await peer.ask("burst", count=3)
        assert answer["failed"] == 3
        assert "no such image" in answer["failures"][0]
    async with _peer("works") as peer:
        assert (await peer.ask("burst", count=3))["failed"] == 0


async def test_lost_output_is_a_failure_and_no_speed() -> None:
    async with _peer("loses") as peer:
        with pytest.raises(PeerFailed, match="999 bytes came of 1000"):
            await peer.ask("output", bytes=1000)


async def test_peer_that_hangs_is_killed_and_another_takes_its_place() -> None:
    async with _peer("hangs", answer_limit_s=5.0) as peer:
        with pytest.raises(PeerFailed, match="no answer in 5 s"):
            await peer.ask("command")
        assert (await peer.ask("output", bytes=10))["took_ms"] >= 0


async def test_worker_that_ends_leaves_its_last_words() -> None:
    async with _peer("ends") as peer:
        with pytest.raises(PeerFailed, match="the engine is gone"):
            await peer.ask("command")


async def test_peer_that_is_not_there_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/docker")
    programs = (PeerProgram("works", MODULE), PeerProgram("other", MODULE, "other"))
    async with workers(programs, ("works", "gateway"), environments=tmp_path) as (there, absent):
        assert set(there) == {"works"}
        assert absent == {"other": Unavailable("not installed (scripts/setup peers)")}
    async with workers(programs, ("refuses", "gateway"), environments=tmp_path) as (there, absent):
        assert there == {}
        assert absent["works"].reason == "ConnectionError: no engine answers"


async def test_no_peer_is_there_without_a_docker_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with workers(PROGRAMS, ("works", "gateway")) as (there, absent):
        assert there == {}
        assert {each.reason for each in absent.values()} == {"there is no `docker` program"}


def test_no_number_stands_for_a_peer_that_is_not_there() -> None:
    series = {
        "cold, ours": Series(unit="ms", samples=[10.0]),
        "SWE-ReX": Series(unit="ms", unavailable="why"),
    }
    rows = {row.name: row for row in figures(series, absent={"SWE-ReX": "why"})}
    assert rows["peer: SWE-ReX"].measured == "not available: why"
    assert all(row.value is None and row.met is None for row in rows.values())
    [times, *_] = grids(series, {"SWE-ReX": Unavailable("why")})
    assert times.columns == ["ours", "SWE-ReX"]
    assert all(row[1] is None for row in times.rows.values())


def test_ours_is_held_against_the_best_peer() -> None:
    series = {
        "cell, ours": Series(unit="ms", samples=[5.0, 5.0]),
        "cell, slow": Series(unit="ms", samples=[90.0, 90.0]),
        "cell, quick": Series(unit="ms", samples=[40.0, 40.0]),
        "output, ours": Series(unit="MiB/s", samples=[150.0]),
        "output, slow": Series(unit="MiB/s", samples=[50.0]),
        "output, quick": Series(unit="MiB/s", samples=[100.0]),
        "output, quick, memory": Series(unit="MiB", samples=[9000.0]),
    }
    assert best_peer(series, "cell") == "quick"
    assert best_peer(series, "output", more_is_better=True) == "quick"
    rows = {row.name: row for row in figures(series, absent={})}
    cell = rows["Python cell in a live session: faster than the fastest peer"]
    assert cell.value == 8.0
    assert cell.met is True
    assert rows["output without a terminal: faster than the fastest peer"].value == 1.5


@pytest.mark.parametrize(
    "path", sorted((ROOT / "requirements" / "peers").glob("*.txt")), ids=lambda path: path.stem
)
def test_what_peers_install_is_pinned_and_names_no_index(path: Path) -> None:
    for line in path.read_text("utf-8").split():
        name, separator, version = line.partition("==")
        assert separator, line
        assert name.replace("-", "").replace("_", "").replace(".", "").isalnum(), line
        assert version[0].isdigit(), line


def test_every_environment_has_its_list() -> None:
    for program in PROGRAMS:
        if program.environment is not None:
            assert (ROOT / "requirements" / "peers" / f"{program.environment}.txt").is_file()
