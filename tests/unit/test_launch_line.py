"""Whatever is passed to a parked container arrives as it is, byte for byte, and nothing else happens."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.engine.base import ContainerSpec
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.sandboxes.launch_line import (
    ASK,
    MAX_ARGUMENT_BYTES,
    MAX_LINE_BYTES,
    READY,
    check_size,
    launch_line,
    park_command,
)
from aeolus_sandbox.sandboxes.parked import ParkedContainer
from aeolus_sandbox.streaming.source_file import SourceFile
from aeolus_sandbox.testing.local_engine import LocalEngine

SHELLS = ["dash", "bash"]
TERMINAL_BYTES = bytes(range(1, 32)) + b"\x7f\xff"

# Text as Python has it for any bytes but zero: what is not UTF-8 comes as lone surrogates (os.fsdecode).
texts = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
raw_texts = st.binary(max_size=12).map(lambda data: os.fsdecode(data.replace(b"\0", b"")))
nasty_texts = st.sampled_from(
    ["'", '"', "\\", "$1", "$(id)", "`id`", "\n", "'\n'", "\r", "\t", "*", "~", "-n", "--", "!!", "a'b\"c\\d\n", ";exit 9",
     "'\"$1\"'", "#", "%s", "\x03", "\x04", "\x1a", "\x7f", "\\\n"]
)  # fmt: skip
values = st.lists(texts | raw_texts | nasty_texts, max_size=3).map("".join)
# Some names mean something to the shell, to the dynamic linker or to the C library; short ones do not.
names = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,2}\Z").filter(lambda name: name not in {"_", "TZ", "IFS"})
SCRIPTS_OWN = ["n", "s", "l", "aeolus_line", "aeolus_stty", "target"]
SHELLS_OWN = [
    "OPTIND",
    "UID",
    "EUID",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "BASH_VERSINFO",
    "IFS",
    "CDPATH",
    "ENV",
]
environments = st.dictionaries(names | st.sampled_from(SCRIPTS_OWN), values, max_size=4)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("shell", SHELLS)
@given(calls=st.lists(st.tuples(st.lists(values, max_size=5), environments), min_size=1, max_size=40))
@settings(max_examples=25, deadline=None)
def test_any_arguments_and_variables_arrive_byte_for_byte(
    shell: str, calls: list[tuple[list[str], Mapping[str, str]]]
) -> None:
    """Many lines go through one shell, each in a child of its own that reads and runs it as a parked one does."""
    lines: list[bytes] = []
    expected: list[bytes] = []
    for arguments, env in calls:
        lines.append(launch_line(["printf", "%s\\0", *arguments, "end"], env={}, cwd="/"))
        expected.append(b"".join(_bytes(argument) + b"\0" for argument in [*arguments, "end"]))
        if env:
            lines.append(launch_line(["printenv", "-0", *env], env=env, cwd="/"))
            expected.append(b"".join(_bytes(value) + b"\0" for value in env.values()))
    script = 'while IFS= LC_ALL=C read -r aeolus_line; do ( eval "$aeolus_line" ) </dev/null; done'
    done = subprocess.run(
        [str(shutil.which(shell)), "-c", script, "sh", "\n"],
        input=b"".join(lines),
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"".join(expected)
    assert done.stderr == b""


def _spec(shell: str, *, tty: bool) -> ContainerSpec:
    argv = (shell, *park_command(tty=tty, deadline_s=60)[1:])
    profile = SandboxProfile(image="local", tty=tty)
    return container_spec(profile, image="local", argv=argv, limits=Limits(), labels={}, seccomp="")


async def _run(
    shell: str,
    argv: Sequence[str],
    *,
    tty: bool,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    files: Sequence[SourceFile] = (),
    size: tuple[int, int] = (80, 24),
) -> tuple[dict[str, bytes], int | None]:
    """Run a program in a parked container, and return what it printed and its code."""
    async with LocalEngine() as engine, asyncio.timeout(20):
        container = await engine.launch(_spec(shell, tty=tty))
        parked = ParkedContainer(container, tty=tty)
        await parked.wait_ready()
        process = await parked.exec(argv, env=env, cwd=cwd, files=files, cols=size[0], rows=size[1])
        output: dict[str, bytes] = {}
        while pieces := await process.read():
            for stream, data in pieces:
                output[stream] = output.get(stream, b"") + data
        return output, (await process.wait()).code


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
@pytest.mark.parametrize("shell", SHELLS)
@given(arguments=st.lists(values, max_size=5), env=environments)
@settings(max_examples=20, deadline=None)
async def test_the_park_script_passes_them_on_over_pipes_and_a_terminal(
    shell: str, tty: bool, arguments: list[str], env: Mapping[str, str]
) -> None:
    report = 'test -t 1 && stty -opost; printf "%s\\0" "$@"; printenv -0 $NAMES; exit 3'
    argv = ["sh", "-c", report, "sh", *arguments, "end"]
    output, code = await _run(shell, argv, tty=tty, env={**env, "NAMES": " ".join(["NAMES", *env])})
    expected = [*arguments, "end", " ".join(["NAMES", *env]), *env.values()]
    assert output == {"stdout": b"".join(_bytes(text) + b"\0" for text in expected)}
    assert code == 3


@pytest.mark.parametrize("shell", SHELLS)
async def test_variables_that_the_shell_makes_up_itself_arrive_too(shell: str) -> None:
    env = {name: f"a 'b' {name}\n" for name in SHELLS_OWN}
    output, code = await _run(shell, ["printenv", "-0", *env], tty=False, env=env)
    assert output == {"stdout": b"".join(_bytes(value) + b"\0" for value in env.values())}
    assert code == 0


def test_a_program_that_looks_like_a_variable_cannot_be_run_with_such_variables() -> None:
    with pytest.raises(ConfigurationError, match="looks like a variable"):
        launch_line(["a=b"], env={"UID": "1"}, cwd="/")


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
async def test_the_longest_argument_and_every_terminal_control_byte_arrive(tty: bool) -> None:
    """A terminal cuts a line at 4,095 bytes, and takes some bytes for signals, unless it is told not to."""
    argument = os.fsdecode(TERMINAL_BYTES * (MAX_ARGUMENT_BYTES // len(TERMINAL_BYTES)))
    script = 'test -t 1 && stty -opost; printf %s "$1"'
    output, code = await _run("dash", ["sh", "-c", script, "sh", argument], tty=tty)
    assert (output, code) == ({"stdout": _bytes(argument)}, 0)


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
@given(
    files=st.dictionaries(
        st.sampled_from(
            ["a", "b/c", "b/d/e", "-x", "sp ace", "qu'ote", "héllo wörld.txt", "new\nline", "$(id)"]
        ),
        st.binary(max_size=50) | st.sampled_from([TERMINAL_BYTES * 400, b"\0" * 9000, b"\n\n'\n"]),
        max_size=4,
    )
)
@settings(max_examples=15, deadline=None)
async def test_files_arrive_byte_for_byte_before_the_program_starts(
    tty: bool, files: Mapping[str, bytes]
) -> None:
    script = 'test -t 1 && stty -opost; for f in "$@"; do cat -- "$f"; printf "|"; done; pwd'
    output, code = await _run(
        "dash",
        ["sh", "-c", script, "sh", *files],
        tty=tty,
        files=[SourceFile.of(*file) for file in files.items()],
    )
    assert code == 0
    content, _, folder = output["stdout"].rpartition(b"|") if files else (b"", b"", output["stdout"])
    assert content == b"|".join(files.values())
    assert folder.endswith(b"/workspace\n")


async def test_input_after_the_files_belongs_to_the_program() -> None:
    async with LocalEngine() as engine, asyncio.timeout(20):
        parked = ParkedContainer(await engine.launch(_spec("dash", tty=False)), tty=False)
        await parked.wait_ready()
        process = await parked.exec(["cat", "f", "-"], files=[SourceFile.of("f", b"file\n")])
        await process.write(b"input\n")
        process.write_eof()
        found = b""
        while pieces := await process.read():
            found += b"".join(piece.data for piece in pieces)
    assert found == b"file\ninput\n"


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_terminal_has_the_size_and_the_modes_that_a_program_expects(shell: str) -> None:
    script = "stty size; stty -a | grep -ow -e '-\\?icanon' -e '-\\?echo' -e '-\\?isig' -e '-\\?opost'"
    output, code = await _run(shell, ["sh", "-c", script], tty=True, size=(120, 40))
    assert code == 0
    assert output["stdout"].split() == [b"40", b"120", b"opost", b"isig", b"icanon", b"echo"]


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_program_has_no_child_that_it_never_had(shell: str) -> None:
    output, _ = await _run(shell, ["sh", "-c", "wait; cat /proc/$$/task/$$/children; echo fin"], tty=False)
    assert output["stdout"].split()[-1] == b"fin"
    assert len(output["stdout"].split()) <= 2  # `cat` itself


@pytest.mark.parametrize("cwd", ["-", "sub", "a b'c", "new\nline", "--", "~"])
async def test_a_relative_folder_is_one_below_the_workspace(cwd: str) -> None:
    env = {"CDPATH": "/", "OLDPWD": "/"}
    output, code = await _run(
        "dash", ["pwd"], tty=False, cwd=cwd, env=env, files=[SourceFile.of(f"{cwd}/f", b"")]
    )
    assert code == 0
    assert list(output) == ["stdout"]
    assert output["stdout"].decode().endswith(f"/workspace/{cwd}\n")


async def test_a_folder_that_is_not_there_ends_with_126_and_runs_nothing() -> None:
    output, code = await _run("dash", ["echo", "ran"], tty=False, cwd="/no/such/folder")
    assert code == 126
    assert "stdout" not in output


async def test_a_program_that_is_not_there_ends_with_127() -> None:
    output, code = await _run("dash", ["/no/such/program"], tty=False)
    assert code == 127
    assert b"/no/such/program" in output["stderr"]


@pytest.mark.parametrize("tty", [False, True], ids=["pipes", "terminal"])
@pytest.mark.parametrize("shell", SHELLS)
async def test_one_that_is_asked_answers_and_goes_on_waiting(shell: str, tty: bool) -> None:
    async with LocalEngine() as engine, asyncio.timeout(20):
        container = await engine.launch(_spec(shell, tty=tty))
        parked = ParkedContainer(container, tty=tty)
        await parked.wait_ready()
        for _ in range(20):
            await container.stream.write(ASK)
            [answer] = await container.stream.read()
            assert answer.data == READY
        process = await parked.exec(["printf", "%s", "?"])
        output = b""
        while pieces := await process.read():
            output += b"".join(piece.data for piece in pieces)
        assert output == b"?"


async def test_the_watchdog_ends_what_outlives_its_deadline() -> None:
    spec = _spec("dash", tty=False)
    argv = (*spec.argv[:2], spec.argv[2].replace("sleep 60", "sleep 0.3"), *spec.argv[3:])
    async with LocalEngine() as engine, asyncio.timeout(10):
        parked = ParkedContainer(await engine.launch(spec.model_copy(update={"argv": argv})), tty=False)
        await parked.wait_ready()
        process = await parked.exec(["sh", "-c", "trap '' HUP INT TERM; sleep 60"])
        assert not await process.read()
        assert (await process.wait()).code == 137


@pytest.mark.parametrize("name", ["", "1a", "a b", "a=b", "a;id", "$a", "a\n", "é", "a-b", "a\0"])
def test_a_name_that_is_not_one_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="environment variable"):
        launch_line(["true"], env={name: "x"}, cwd="/")


@pytest.mark.parametrize("where", ["argv", "env", "cwd", "path"])
def test_a_zero_byte_is_refused_wherever_it_stands(where: str) -> None:
    with pytest.raises(ConfigurationError, match="zero byte"):
        launch_line(
            ["true", "a\0b" if where == "argv" else ""],
            env={"A": "a\0b" if where == "env" else ""},
            cwd="/\0" if where == "cwd" else "/",
            files=[("a\0b" if where == "path" else "a", 1)],
        )


def test_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not text"):
        launch_line(["true", "\ud800"], env={}, cwd="/")


def test_no_program_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="argv is empty"):
        launch_line([], env={}, cwd="/")


def test_what_the_kernel_would_not_take_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match="use a file"):
        launch_line(["true", "x" * (MAX_ARGUMENT_BYTES + 1)], env={}, cwd="/")
    with pytest.raises(ConfigurationError, match="use files"):
        launch_line(["true", *["x" * MAX_ARGUMENT_BYTES] * 9], env={}, cwd="/")
    assert len(launch_line(["true", "x" * MAX_ARGUMENT_BYTES], env={}, cwd="/")) < MAX_LINE_BYTES


@given(
    argv=st.lists(values, min_size=1, max_size=4),
    env=environments,
    cwd=values,
    files=st.lists(st.tuples(values, st.integers(0, 10**12)), max_size=3),
)
def test_it_is_always_one_line(
    argv: list[str], env: Mapping[str, str], cwd: str, files: list[tuple[str, int]]
) -> None:
    line = launch_line(argv, env=env, cwd=cwd, files=files, size=(80, 24))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1


@pytest.mark.parametrize(("cols", "rows"), [(0, 24), (80, 0), (-1, 24), (65536, 24), (80, 65536)])
def test_a_size_that_no_terminal_has_is_refused(cols: int, rows: int) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        check_size(cols, rows)


def test_the_park_script_is_plain_posix(tmp_path: Path) -> None:
    """Checked by the strictest shell that is there: what dash parses, every `sh` does."""
    for tty in (False, True):
        script = tmp_path / "park"
        script.write_text(park_command(tty=tty, deadline_s=1.2)[2])
        subprocess.run(["dash", "-n", str(script)], check=True, capture_output=True)
