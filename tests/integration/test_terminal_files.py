"""Where a command runs, with which variables and which files."""

import hashlib
import os
from pathlib import Path

import pytest

from aeolus_sandbox import ConfigurationError, SessionManager, TerminalInput, TerminalTool
from aeolus_sandbox.limits import MIB
from tests.integration.running import open_command, run_command

pytestmark = pytest.mark.docker

NOWHERE = "unix:///nonexistent/engine.sock"
AWKWARD = {
    "plain": "value",
    "spaces": "  two  words  ",
    "quotes": 'it\'s "quoted" `here` $(there) ${X} \\n \\',
    "newlines": "line one\nline two\n",
    "controls": "a\x01\x03\x04\x11\x13\x1a\x1b[31m\x7fb",
    "unicode": "héllo wörld 😀",
    "empty": "",
}


@pytest.mark.parametrize("tty", [True, False])
async def test_arguments_reach_the_program_unchanged(manager: SessionManager, tty: bool) -> None:
    program = "import os, sys; sys.stdout.write(ascii(sys.argv[1:]))"
    outcome = await run_command(manager, ("python3", "-c", program, *AWKWARD.values()), tty=tty)
    assert outcome.text == ascii(list(AWKWARD.values()))


@pytest.mark.parametrize("tty", [True, False])
async def test_variables_reach_the_program_unchanged(manager: SessionManager, tty: bool) -> None:
    program = "import os, sys; sys.stdout.write(ascii({k: os.environ[k] for k in sorted(os.environ) if k.islower()}))"
    outcome = await run_command(manager, ("python3", "-c", program), tty=tty, env=AWKWARD)
    assert outcome.text == ascii(dict(sorted(AWKWARD.items())))


async def test_variables_can_replace_those_of_the_image(manager: SessionManager) -> None:
    outcome = await run_command(manager, "echo $HOME $LANG", env={"HOME": "/tmp", "LANG": "C"}, tty=False)
    assert outcome.text == "/tmp C\n"


async def test_command_starts_in_the_workspace_or_where_it_was_told(manager: SessionManager) -> None:
    assert (await run_command(manager, "pwd", tty=False)).text == "/workspace\n"
    assert (await run_command(manager, "pwd", tty=False, cwd="/usr/share")).text == "/usr/share\n"
    assert (
        await run_command(manager, "pwd", tty=False, cwd="sub/folder", files={"sub/folder/x": b""})
    ).text == ("/workspace/sub/folder\n")
    missing = await run_command(manager, "echo not reached", cwd="/nope")
    assert missing.result.exit_code == 126
    assert "/nope" in missing.text
    assert "not reached" not in missing.text


@pytest.mark.parametrize("tty", [True, False])
async def test_files_arrive_whole_and_can_be_changed(manager: SessionManager, tty: bool) -> None:
    files: dict[str, bytes | str] = {
        "héllo wörld.txt": b"abc",
        "a/b/c.txt": b"deep\n",
        "empty": b"",
        "-rf": b"dash",
        'it\'s "here" $(x)\n': b"quoted",
        "every byte": bytes(range(256)) * 64,
        "text": "é\n",
        "ends like the keys that detach": b"\x10\x11\x00\xff",
    }
    program = (
        "import os, sys, hashlib\n"
        "for folder, _, names in sorted(os.walk('.')):\n"
        "    for name in sorted(names):\n"
        "        path = os.path.join(folder, name)\n"
        "        data = open(path, 'rb').read()\n"
        "        open(path, 'ab').write(b'more')\n"
        "        assert open(path, 'rb').read() == data + b'more'\n"
        "        os.remove(path)\n"
        "        print(ascii((os.path.relpath(path, '.'), len(data), hashlib.sha256(data).hexdigest())))\n"
    )
    outcome = await run_command(manager, ("python3", "-c", program), tty=tty, files=files)
    expected = set()
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        expected.add(ascii((name, len(data), hashlib.sha256(data).hexdigest())))
    assert outcome.result.status.ok, outcome.text
    assert {line.strip("\r") for line in outcome.text.split("\n")} - {""} == expected


@pytest.mark.parametrize("tty", [True, False])
async def test_large_file_arrives_whole(manager: SessionManager, tmp_path: Path, tty: bool) -> None:
    source = tmp_path / "zeros"
    source.write_bytes(bytes(20 * MIB))
    outcome = await run_command(
        manager,
        "stat -c %s:%u big after; tr -d '\\0' < big | wc -c; cat after",
        tty=tty,
        files={"big": source, "after": b"here"},
    )
    assert outcome.text.split() == [f"{20 * MIB}:10001", "4:10001", "0", "here"]


async def test_input_after_files_is_for_the_program(manager: SessionManager) -> None:
    outcome = await run_command(
        manager, "read -r -t 0 line 2>/dev/null; wc -c < a; wc -c < b", files={"a": b"x" * 100, "b": b"y"}
    )
    assert outcome.text.split() == ["100", "1"]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "..", ".", "", "a/", "a\0b", "x" * 300])
async def test_path_outside_the_workspace_is_refused_before_any_engine_is_asked(path: str) -> None:
    async with SessionManager(docker_host=NOWHERE) as manager:
        with pytest.raises(ConfigurationError):
            await open_command(manager, "true", files={path: b"x"})


async def test_source_that_is_no_regular_file_is_refused_before_any_engine_is_asked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    sources = [tmp_path / "link", tmp_path / "fifo", tmp_path, tmp_path / "missing", Path("/dev/zero")]
    async with SessionManager(docker_host=NOWHERE) as manager:
        for source in sources:
            with pytest.raises(ConfigurationError):
                await open_command(manager, "true", files={"x": source})


async def test_text_of_a_file_is_never_taken_for_a_path_of_the_host(manager: SessionManager) -> None:
    tool_input = TerminalInput.model_validate(
        {"command": "cat x", "tty": False, "files": {"x": "/etc/hostname"}}
    )
    async with await manager.open(TerminalTool(), tool_input) as session:
        assert "".join([chunk.text async for chunk in session]) == "/etc/hostname"


async def test_files_larger_than_the_workspace_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "huge"
    with source.open("wb") as file:
        file.truncate(300 * MIB)
    async with SessionManager(docker_host=NOWHERE) as manager:
        with pytest.raises(ConfigurationError, match="disk_bytes"):
            await open_command(manager, "true", files={"x": source})
