"""Files that a caller puts into a kernel's workspace arrive as they are, belong to the code, and go nowhere else."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from aeolus_sandbox import CodeInterpreterInput, ConfigurationError, Limits, SessionManager
from aeolus_sandbox.limits import MIB
from tests.integration.code_runs import run_code, shared_manager

pytestmark = pytest.mark.docker

ZEROS = 20 * MIB


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def test_names_and_contents_arrive_intact(shared: SessionManager) -> None:
    files = {
        "héllo wörld.txt": b"abc",
        "a/b/c.txt": "tëxt",
        "empty": b"",
        "zeros.bin": bytes(ZEROS),
        "-rf": b"dash",
        "quo'te\"$(id).txt": b"\x00\xff",
        "x" * 255: b"long name",
    }
    code = (
        "import json, os, hashlib\nfound = {}\nfor root, _, names in os.walk('.'):\n  for name in names:\n"
        "    path = os.path.join(root, name); data = open(path, 'rb').read()\n"
        "    found[path[2:]] = [len(data), hashlib.sha256(data).hexdigest()]\nprint(json.dumps(found))"
    )
    ran = await run_code(shared, code, files=files)
    found = json.loads(ran.text())
    sent = {name: data.encode() if isinstance(data, str) else data for name, data in files.items()}
    assert {name: size for name, (size, _) in found.items()} == {n: len(d) for n, d in sent.items()}
    checked = await run_code(
        shared, "import hashlib; print(hashlib.sha256(bytes(20 * 2**20)).hexdigest())", session_id="a"
    )
    assert found["zeros.bin"][1] == checked.text().strip()


async def test_code_reads_appends_and_deletes_what_was_put_in(shared: SessionManager) -> None:
    code = (
        "import os\nfor name in ('héllo wörld.txt', 'a/b/c.txt', 'empty'):\n  open(name, 'a').write('+')\n"
        "  print(open(name).read()); os.remove(name)\nos.rmdir('a/b'); print(os.listdir('.'), os.getuid() != 0)"
    )
    files = {"héllo wörld.txt": b"abc", "a/b/c.txt": b"nested", "empty": b""}
    ran = await run_code(shared, code, files=files)
    assert ran.result.error is None
    assert ran.text() == "abc+\nnested+\n+\n['a'] True\n"


async def test_later_call_replaces_a_file(shared: SessionManager) -> None:
    await run_code(shared, "1", session_id="a", files={"f.txt": b"long content"})
    ran = await run_code(shared, "print(open('f.txt').read())", session_id="a", files={"f.txt": b"new"})
    assert ran.text() == "new\n"


async def test_root_is_read_only_and_the_workspace_is_not(shared: SessionManager) -> None:
    code = (
        "for path in ('/x', '/etc/x', '/usr/x', '/var/x', '/home/x', '/workspace/x', '/tmp/x'):\n"
        "  try: open(path, 'w').close(); print('wrote', path)\n  except OSError as error: pass"
    )
    assert (await run_code(shared, code)).text() == "wrote /workspace/x\nwrote /tmp/x\n"


@pytest.mark.parametrize(
    "path",
    ["../../etc/x", "/etc/x", "a/../../x", "..", ".", "", "a/", "/", "nul\0", "x" * 256, "a/" * 3000 + "b"],
)
async def test_paths_that_escape_are_refused_before_anything_starts(path: str) -> None:
    async with SessionManager() as manager:
        with pytest.raises(ConfigurationError):
            await run_code(manager, "1", files={"good.txt": b"1", path: b"x"})
        assert manager._host._launcher is None  # the engine was not even asked


async def test_links_and_devices_are_no_sources(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "loop").symlink_to("loop")
    sources = [tmp_path / "link", tmp_path / "loop", tmp_path, tmp_path / "missing", Path("/dev/zero")]
    async with SessionManager() as manager:
        for source in sources:
            with pytest.raises(ConfigurationError):
                await run_code(manager, "1", files={"f": source})
        assert manager._host._launcher is None


async def test_file_of_the_host_is_sent_by_its_path_object_only(
    shared: SessionManager, tmp_path: Path
) -> None:
    source = tmp_path / "data.csv"
    source.write_text("a,b\n1,2\n")
    ran = await run_code(
        shared, "print(open('d').read(), open('t').read())", files={"d": source, "t": str(source)}
    )
    assert ran.text() == f"a,b\n1,2\n {source}\n"


async def test_more_than_the_workspace_holds_is_refused_before_anything_starts() -> None:
    async with SessionManager(limits=Limits(disk_bytes=2 * MIB)) as manager:
        with pytest.raises(ConfigurationError, match="larger than the workspace"):
            await run_code(manager, "1", files={"a": bytes(MIB), "b": bytes(MIB + 1)})
        assert manager._host._launcher is None


async def test_file_that_does_not_fit_any_more_is_told(shared: SessionManager) -> None:
    limits = Limits(disk_bytes=4 * MIB)
    fill = await run_code(
        shared, "open('full', 'wb').write(bytes(3 * 2**20))", session_id="full", limits=limits
    )
    assert fill.result.success
    with pytest.raises(ConfigurationError, match=r"'more'.*No space left"):
        await run_code(shared, "1", session_id="full", files={"more": bytes(2 * MIB)})
    ran = await run_code(shared, "import os; os.listdir('.')", session_id="full")
    assert ran.result.result == "['full']"


async def test_code_cannot_lead_a_later_file_elsewhere(shared: SessionManager) -> None:
    await run_code(shared, "import os; os.symlink('/tmp', 'out'); os.mkfifo('pipe')", session_id="trap")
    for path in ("out/x", "pipe", "out"):
        with pytest.raises(ConfigurationError, match="could not be written"):
            await run_code(shared, "1", session_id="trap", files={path: b"x"})
    ran = await run_code(shared, "'x' in os.listdir('/tmp')", session_id="trap")
    assert ran.result.result == "False"


def test_an_input_as_json_holds_contents_and_never_paths_of_the_host() -> None:
    given = CodeInterpreterInput.model_validate_json(
        '{"code": "1", "files": {"a": "/etc/passwd", "b": {"base64": "AP8="}}}'
    )
    assert given.files == {"a": b"/etc/passwd", "b": b"\x00\xff"}
    assert CodeInterpreterInput.model_validate_json(given.model_dump_json()) == given
    with pytest.raises(ValidationError):
        CodeInterpreterInput.model_validate_json('{"code": "1", "files": {"a": {"path": "/etc/passwd"}}}')
