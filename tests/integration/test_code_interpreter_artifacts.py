"""What code leaves in its workspace is listed and fetched, and nothing else of the machine is, whatever the code does."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from aeolus_sandbox import ConfigurationError, Limits, SessionManager
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.errors import ArtifactError, SessionBroken
from aeolus_sandbox.limits import GIB, MIB
from aeolus_sandbox.tools.code_interpreter.models import CodeResult
from tests.integration.code_runs import (
    CodeSession,
    container_count,
    finish,
    open_code,
    read_until,
    run_code,
    shared_manager,
    wait_container_count,
)
from tests.integration.running import PATIENCE_S, resident_bytes

pytestmark = pytest.mark.docker

LARGE_BYTES = 100 * MIB
IN_ITS_WORDS = {
    "bash": "echo made > made.txt",
    "javascript": 'Deno.writeTextFileSync("made.txt", "made\\n")',
    "r": 'cat("made\\n", file = "made.txt")',
    "typescript": 'const text: string = "made\\n"; Deno.writeTextFileSync("made.txt", text)',
}
FLAT_BYTES = 48 * MIB
"""How much the host's memory may grow while much more than that goes through it."""


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def ended(manager: SessionManager, code: str, session_id: str = "a") -> CodeSession:
    """Return a session of a kept kernel whose code has ended well."""
    session = await open_code(manager, code, session_id=session_id)
    result = await finish(session)
    assert result.error is None
    return session


async def fetch(session: CodeSession, path: str, *, max_bytes: int = 64 * MIB) -> bytes:
    async with asyncio.timeout(PATIENCE_S):
        return await session.read_artifact(path, max_bytes=max_bytes)


def changes(result: CodeResult) -> dict[str, tuple[str, int, str]]:
    return {each.path: (each.change, each.size_bytes, each.mime_type) for each in result.artifacts}


async def test_each_call_names_what_it_has_changed(shared: SessionManager) -> None:
    figure = (
        "import os, matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('plot.png'); plt.close()\n"
        "os.makedirs('out/deep'); open('out/deep/data.csv', 'w').write('a,b')\n"
        "open('put.txt', 'a').write('!'); open('.hidden', 'w').write('x'); os.mkdir('__pycache__')\n"
        "open('__pycache__/x.pyc', 'w').write('x'); open('/tmp/elsewhere', 'w').write('x')"
    )
    files = {"put.txt": b"from the host", "left.txt": b"alone"}
    first = (await run_code(shared, figure, session_id="list", files=files)).result
    assert first.error is None
    size_bytes = changes(first).pop("plot.png")[1]
    assert changes(first) == {
        "plot.png": ("created", size_bytes, "image/png"),
        "put.txt": ("modified", 14, "text/plain"),
        "out/deep/data.csv": ("created", 3, "text/csv"),
    }
    assert (first.artifacts_left_out, first.artifacts_complete) == (0, True)
    assert "put.txt (modified, 14 bytes, text/plain)" in first.as_text()
    second = "import os; os.remove('plot.png'); os.rename('out/deep', 'out/moved'); 1/0"
    assert changes((await run_code(shared, second, session_id="list")).result) == {
        "out/moved/data.csv": ("created", 3, "text/csv"),
        "out/deep/data.csv": ("deleted", 0, "text/csv"),
        "plot.png": ("deleted", 0, "application/octet-stream"),
    }
    assert (await run_code(shared, "1", session_id="list")).result.artifacts == ()


@pytest.mark.parametrize("language", IN_ITS_WORDS)
async def test_files_of_every_language_are_listed_and_fetched(manager: SessionManager, language: str) -> None:
    async with await open_code(manager, IN_ITS_WORDS[language], language=language) as session:
        result = await finish(session)
        assert changes(result) == {"made.txt": ("created", 5, "text/plain")}, result.as_text()
        assert await fetch(session, "made.txt") == b"made\n"


async def test_files_of_a_single_call_are_fetched_until_its_session_is_closed(
    manager: SessionManager, engine: DockerEngine, tmp_path: Path
) -> None:
    async with await open_code(manager, "open('a', 'wb').write(bytes(range(256)))") as session:
        assert await fetch(session, "a") == bytes(range(256))
        assert await session.save_artifact("a", tmp_path / "saved") == 256
        assert (tmp_path / "saved").read_bytes() == bytes(range(256))
        assert await container_count(engine, manager) == 1
    await wait_container_count(engine, manager, 0)
    with pytest.raises(ArtifactError, match="before it is closed"):
        await fetch(session, "a")
    assert [each.path for each in (await finish(session)).artifacts] == ["a"]


async def test_code_that_leaves_no_file_holds_no_container(
    manager: SessionManager, engine: DockerEngine
) -> None:
    session = await open_code(manager, "print('nothing'); open('/tmp/x', 'w').write('x')")
    await finish(session)
    await wait_container_count(engine, manager, 0)
    await session.aclose()


async def test_files_of_a_kept_kernel_are_fetched_as_long_as_it_lives(shared: SessionManager) -> None:
    session = await ended(shared, "open('a', 'w').write('first')", "lives")
    await session.aclose()
    await run_code(shared, "open('b', 'w').write('second')", session_id="lives")
    assert (await fetch(session, "a"), await fetch(session, "b")) == (b"first", b"second")
    await shared.kept.restart("code_interpreter", "lives")
    with pytest.raises(ArtifactError, match="another one has taken its place"):
        await fetch(session, "a")


async def test_files_are_there_after_the_kernel_died_or_time_was_up(shared: SessionManager) -> None:
    for code, timeout_s in (
        ("import os\nopen('a', 'w').write('last words')\nos.kill(os.getpid(), 9)", None),
        ("open('a', 'w').write('last words')\nwhile True: pass", 1.0),
    ):
        async with await open_code(shared, code, timeout_s=timeout_s) as session:
            result = await finish(session)
            assert not result.success
            assert [each.path for each in result.artifacts] == ["a"]
            assert await fetch(session, "a") == b"last words"


async def test_code_that_ends_its_container_has_a_result_that_lists_nothing(manager: SessionManager) -> None:
    code = "import os, signal; open('a', 'w').write('x'); os.kill(os.getppid(), signal.SIGKILL)"
    async with await open_code(manager, code) as session:
        result = await finish(session)
        assert (result.artifacts, result.artifacts_complete) == ((), False)
        with suppress(ArtifactError, SessionBroken):
            pytest.fail(f"fetched {await fetch(session, 'a')!r} from a container that has ended")


TRAPS = """
import os, socket
os.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'folder'); os.symlink('/proc/self/root/etc', 'magic')
os.symlink('loop', 'loop'); os.mkfifo('pipe'); os.mkdir('dir'); os.mkdir('locked', 0)
socket.socket(socket.AF_UNIX).bind('socket')
open('dir/new\\nline \\x1b[31m', 'w').write('odd'); open('..dots', 'w').write('dots')
open(b'not-utf8-\\xff', 'w').write('x'); open('secret.png', 'w').write('<script>')
os.chdir('dir')
for _ in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)
open('deep', 'w').write('x'); os.chdir('/workspace')
"""


async def test_links_pipes_devices_and_odd_names_lead_nowhere(shared: SessionManager) -> None:
    session = await ended(shared, TRAPS)
    result = await finish(session)
    assert changes(result) == {
        "dir/new\nline \x1b[31m": ("created", 3, "text/plain"),
        "secret.png": ("created", 8, "application/octet-stream"),
    }
    assert "\x1b" not in result.as_text()
    assert (result.artifacts_left_out, result.artifacts_complete) == (
        1,
        False,
    )  # not UTF-8; locked, and too deep
    assert await fetch(session, "dir/new\nline \x1b[31m") == b"odd"
    assert await fetch(session, "..dots") == b"dots"
    for path in (
        "link",
        "folder/passwd",
        "magic/passwd",
        "loop",
        "pipe",
        "dir",
        "locked/x",
        "socket",
        "missing",
    ):
        with pytest.raises(ArtifactError, match="cannot be fetched"):
            await fetch(session, path)
    for path in (
        "../x",
        "/etc/passwd",
        "dir/../../etc/passwd",
        "",
        ".",
        "a\0b",
        "a/" * 50_000 + "a",
        "\ud800",
    ):
        with pytest.raises((ConfigurationError, ArtifactError)):
            await fetch(session, path)
    assert (await run_code(shared, "1 + 1", session_id="a")).result.result == "2"


async def test_a_file_that_is_swapped_for_a_link_gives_nothing_from_outside(shared: SessionManager) -> None:
    swapper = """
import os, threading, time
os.makedirs('swap/real'); open('swap/real/passwd', 'w').write('inside'); os.symlink('/etc', 'swap/link')
open('good', 'w').write('inside'); stop = time.monotonic() + 20
def swap():
    while time.monotonic() < stop:
        os.symlink('/etc/passwd', 'new'); os.rename('new', 'target'); os.rename('swap/link', 'swap/now')
        os.rename('swap/now', 'swap/link'); os.rename('swap/real', 'swap/now'); os.link('good', 'new')
        os.rename('new', 'target'); os.rename('swap/now', 'swap/real')
threading.Thread(target=swap, daemon=True).start()
"""
    session, seen = await ended(shared, swapper, "swap"), set[bytes]()
    for _ in range(300):
        for path in ("target", "swap/now/passwd"):
            with suppress(ArtifactError):
                seen.add(await fetch(session, path))
    assert seen == {b"inside"}
    await shared.kept.close("code_interpreter", "swap")


async def test_a_file_that_grows_while_it_is_read_has_an_end(shared: SessionManager) -> None:
    grower = (
        "import threading\nfile = open('grows', 'wb', buffering=0); file.write(bytes(10**6)); stop = threading.Event()\n"
        "def grow():\n  while not stop.is_set() and file.tell() < 40 * 10**6: file.write(bytes(10**5))\n"
        "threading.Thread(target=grow, daemon=True).start()"
    )
    session = await ended(shared, grower, "grows")
    sizes = [len(await fetch(session, "grows", max_bytes=256 * MIB)) for _ in range(3)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= 10**6
    await shared.kept.close("code_interpreter", "grows")


async def test_a_file_larger_than_asked_for_is_refused_before_any_of_it_comes(
    shared: SessionManager, tmp_path: Path
) -> None:
    session = await ended(
        shared, "import os; open('sparse', 'w').close(); os.truncate('sparse', 200 * 2**20)"
    )
    before = resident_bytes()
    with pytest.raises(ArtifactError, match=r"'sparse'.*209715200 bytes, more than the 67108864"):
        await session.read_artifact("sparse")
    with pytest.raises(ArtifactError, match="more than the 1000 allowed"):
        await session.save_artifact("sparse", tmp_path / "sparse", max_bytes=1000)
    assert resident_bytes() - before < FLAT_BYTES
    assert list(tmp_path.iterdir()) == []
    code = "import os; os.truncate('sparse', 2**40)"  # the workspace's own size is the largest of a file
    assert (await run_code(shared, code, session_id="a")).error_name == "OSError"


async def test_very_many_files_are_listed_in_part_and_in_time(manager: SessionManager) -> None:
    code = (
        "import os\nopen('top', 'w').write('x'); os.mkdir('many')\n"
        "for i in range(60_000): os.close(os.open(f'many/{i}', os.O_CREAT | os.O_WRONLY))"
    )
    async with await open_code(manager, code) as session:
        result = await finish(session)
        assert len(result.artifacts) == 1000
        assert result.artifacts[0].path == "top"
        assert not result.artifacts_complete
        assert result.artifacts_left_out > 1000
        assert "more files]" in result.as_text()
        assert await fetch(session, "many/59999") == b""


async def test_a_large_file_goes_in_and_out_with_little_memory(
    manager: SessionManager, tmp_path: Path
) -> None:
    source, back = tmp_path / "in", tmp_path / "out"
    piece = os.urandom(MIB)
    with source.open("wb") as file:
        for number in range(LARGE_BYTES // MIB):
            file.write(number.to_bytes(8, "big") + piece[8:])
    limits = Limits(memory_bytes=GIB, disk_bytes=LARGE_BYTES * 2 + MIB)
    code = "import hashlib, shutil; shutil.copy('in', 'out'); hashlib.file_digest(open('in', 'rb'), 'sha256').hexdigest()"
    peak, before = 0, resident_bytes()

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, resident_bytes())
            await asyncio.sleep(0.02)

    async with asyncio.timeout(2 * PATIENCE_S), asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        async with await open_code(manager, code, files={"in": source}, limits=limits) as session:
            assert (await finish(session)).success
            assert await session.save_artifact("out", back) == LARGE_BYTES
        watching.cancel()
    assert peak - before < FLAT_BYTES
    with source.open("rb") as sent, back.open("rb") as received:
        while piece := sent.read(MIB):
            assert received.read(MIB) == piece


async def test_a_fetch_that_is_cancelled_leaves_the_kernel_as_it_was(
    shared: SessionManager, tmp_path: Path
) -> None:
    session = await ended(shared, f"x = 5; open('big', 'wb').write(bytes({LARGE_BYTES}))", "cancel")
    for delay_s in (0.0, 0.01, 0.1):
        with suppress(TimeoutError):
            await asyncio.wait_for(session.save_artifact("big", tmp_path / "big"), delay_s)
    began = time.monotonic()
    assert (await run_code(shared, "x", session_id="cancel")).result.result == "5"
    assert time.monotonic() - began < PATIENCE_S
    assert not [path for path in tmp_path.iterdir() if path.name != "big"]
    await shared.kept.close("code_interpreter", "cancel")


async def test_fetching_waits_for_the_end_of_the_code(shared: SessionManager) -> None:
    code = "import time; print('begun', flush=True); time.sleep(0.5); open('late', 'w').write('written')"
    async with await open_code(shared, code, session_id="a") as session:
        await read_until(session, "begun")
        assert await fetch(session, "late") == b"written"
