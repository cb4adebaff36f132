"""What all tests share: an event loop that must not be blocked, an engine that must be there, and no leftovers."""

from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import settings

from aeolus_sandbox import SessionManager
from aeolus_sandbox.engine.base import OWNER_LABEL
from aeolus_sandbox.engine.docker import DockerEngine

# How long an example takes says more of the machine than of us; every test has a time limit of its own.
settings.register_profile("aeolus", deadline=None)
settings.load_profile("aeolus")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, which is what the library is written for."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _own_state_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what is recorded away from the user's state file, also in programs that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AEOLUS_STATE", str(tmp_path_factory.mktemp("state") / "state.db"))
        yield


@pytest.fixture(autouse=True)
def _blocking_calls_fail() -> Iterator[None]:
    """Make a blocking call of ours inside the event loop fail the test."""
    with blockbuster_ctx("aeolus_sandbox") as watch:
        # /proc is memory of the kernel, and so is the entry of the engine's socket: neither waits for a disk.
        for function in ("io.TextIOWrapper.read", "io.BufferedReader.read", "os.readlink", "os.stat"):
            if function in watch.functions:
                watch.functions[function].can_block_in("sandboxes/owner.py", {"_this_host", "_start_ticks"})
                watch.functions[function].can_block_in("engine/docker.py", {"engine_address"})
        yield


@pytest.fixture
async def engine() -> AsyncIterator[DockerEngine]:
    """Give the Docker engine; a machine without one fails the test."""
    async with DockerEngine() as docker:
        yield docker


@pytest.fixture
async def manager(engine: DockerEngine) -> AsyncIterator[SessionManager]:
    """Give a manager with the default limits; a container that is left when it has closed fails the test."""
    async with SessionManager() as opened:
        yield opened
    left = await engine.list_containers({OWNER_LABEL: opened.owner})
    assert left == []
