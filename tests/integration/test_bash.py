"""Bash in the code interpreter: one shell from cell to cell, its two outputs apart, its ends and errors told."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from aeolus_sandbox import SessionManager, Text
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code, shared_manager

pytestmark = pytest.mark.docker

LOST: Final = "the kernel was replaced: its variables are lost"


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a cell in the bash that this module's tests share."""
    return await run_code(shared, code, language="bash", session_id="bash", **settings)


CELLS: Final = [
    # code, stdout, stderr, error
    ("env | grep -c PS1", "0\n", "", ("ExitStatus", "1")),
    ("echo tail", "tail\n", "", None),
    ("false", "", "", ("ExitStatus", "1")),
    ('echo "rc=$?"', "rc=1\n", "", None),
    ("x=1; f() { echo f $x $1; }; mkdir -p d; cd d; shopt -s nullglob; a=(1 'two words')", "", "", None),
    ('f 2; pwd; echo *.none; echo "${a[1]}"; cd ..; rmdir d', "f 1 2\n/workspace/d\n\ntwo words\n", "", None),
    ("set -x; : a", "", "++ : a\n", None),
    ("echo foo", "foo\n", "++ echo foo\n", None),
    ("set +x", "", "++ set +x\n", None),
    ("echo quiet", "quiet\n", "", None),
    ("printf 'no newline'", "no newline", "", None),
    ("echo out; echo err >&2", "out\n", "err\n", None),
    ("cat <<EOF\nx is $x\nEOF", "x is 1\n", "", None),
    ("cat <<'EOF' | tr a-z A-Z\n$x\nEOF", "$X\n", "", None),
    ("set -u; echo $nope; echo not here", "", "bash: nope: unbound variable\n", ("ExitStatus", "1")),
    ("set +u; echo $x", "1\n", "", None),
    (": ${x:?}; : ${nope:?is not set}", "", "bash: nope: is not set\n", ("ExitStatus", "1")),
    ("break; continue; return 4", "", None, ("ExitStatus", "4")),
    ('read x; echo "$? <$x>"; cat; x=1', "1 <>\n", "", None),
    ("exec 3>&1 >/dev/null; echo lost; echo three >&3; exec 3>&-", "three\n", "", None),
    ("echo seen", "seen\n", "", None),
    ("exec nosuchprogram", "", "bash: exec: nosuchprogram: not found\n", ("ExitStatus", "127")),
    ("kill 0; kill $$; echo still", "still\n", "", None),
    ("sleep 60 & jobs -p | wc -l; kill %1; wait", "1\n", "", None),
    ("ls -l /proc/self/fd | awk '{print $9}' | xargs", "0 1 2 3\n", "", None),
    (r"printf 'a\0b caf\xe9 \xe2\x82'", "a\0b caf\ufffd \ufffd", "", None),
    ("yes | head -1; echo ${PIPESTATUS[*]}", "y\n141 0\n", "", None),
    ("sh -c 'kill -9 $$'", "", "", ("ExitStatus", "137")),
    ("echo $x; declare -F; type -t read", "1\ndeclare -f f\nbuiltin\n", "", None),
    ("  \n# nothing\n", "", "", None),
    ("", "", "", None),
]


async def test_one_shell_with_all_its_state_and_nothing_of_its_driver(shared: SessionManager) -> None:
    for code, stdout, stderr, error in CELLS:
        ran = await cell(shared, code)
        found = None if ran.result.error is None else (ran.result.error.name, ran.result.error.value)
        assert (code, ran.text(), found) == (code, stdout, error)
        assert stderr is None or ran.text("stderr") == stderr, code
        assert ran.result.success == (error is None)
        assert not ran.result.environment_recreated


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("echo 'open quote", "line 1: unexpected EOF while looking for matching `''"),
        ("echo first\necho (", "line 2: syntax error near unexpected token"),
        ("if true; then echo", "line 2: syntax error: unexpected end of file"),
    ],
)
async def test_a_syntax_error_is_an_error_in_bashs_words(
    shared: SessionManager, code: str, message: str
) -> None:
    ran = await cell(shared, code)
    assert ran.error_name == "SyntaxError"
    assert message in ran.error_value
    assert f"bash: {message}" in ran.text("stderr")
    assert message in ran.text("error")
    assert (await cell(shared, "echo w")).text() == "w\n"


async def test_output_arrives_as_it_is_printed(shared: SessionManager) -> None:
    code = "for i in 1 2 3; do printf .; until [ -e next$i ]; do sleep 0.01; done; done & sleep 0.1; wait"
    async with await open_code(shared, code, language="bash", session_id="bash") as session:
        chunk = await session.next_chunk()
        assert chunk is not None
        assert (chunk.stream, chunk.content) == ("stdout", ".")
        assert session.status is None
        await session.cancel()
        await finish(session)
    await cell(shared, "kill %% 2>/dev/null; wait")


async def test_a_background_job_holds_no_cell_and_its_output_is_marked(shared: SessionManager) -> None:
    first = await cell(shared, "rm -f go; (until [ -e go ]; do sleep 0.01; done; echo late) & echo now")
    assert (first.text(), first.text("stderr")) == ("now\n", "")
    second = await cell(shared, "touch go; wait; echo third")
    said = {(chunk.content, chunk.background) for chunk in second.of("stdout")}
    assert said == {("late\n", True), ("third\n", False)}


async def test_read_asks_whoever_runs_the_cell(shared: SessionManager) -> None:
    code = "read -p 'name? ' name; echo hello $name; cat"
    async with (
        asyncio.timeout(30),
        await open_code(shared, code, language="bash", session_id="bash", allow_stdin=True) as session,
    ):
        await read_until(session, "name? ")
        await session.send_stdin(Text("Ada\n"))
        assert (await finish(session)).output.endswith("hello Ada\n")


async def test_five_megabytes_on_one_line_arrive_whole(shared: SessionManager) -> None:
    ran = await cell(shared, "head -c 5000000 /dev/zero | tr '\\0' x")
    assert ran.text() == "x" * 5_000_000


async def test_an_interrupt_ends_the_cell_and_its_programs_and_keeps_the_shell(
    shared: SessionManager,
) -> None:
    await cell(shared, "mark=1")
    for code in (
        "echo begun; sleep 987; echo done",
        "echo begun; while :; do :; done",
        "echo begun; yes >/dev/null",
    ):
        async with (
            asyncio.timeout(30),
            await open_code(shared, code, language="bash", session_id="bash") as session,
        ):
            assert await read_until(session, "begun") == "begun\n"
            await session.cancel()
            result = await finish(session)
        assert result.status.reason == "cancelled"
        assert "done" not in result.output
        ran = await cell(shared, "echo $mark; pgrep -c 'sleep|yes'")
        assert ran.text() == "1\n0\n"
        assert not ran.result.environment_recreated


@pytest.mark.parametrize(
    ("code", "printed", "name"),
    [
        ("trap 'echo bye' EXIT; exit 3", "bye\n", "ExitStatus"),
        ("echo a; set -e; false; echo b", "a\n", "ExitStatus"),
        ("exec echo replaced", "replaced\n", None),
        ("echo before; kill -9 $$", "before\n", "KernelDied"),
    ],
)
async def test_the_end_of_bash_is_told_and_the_next_cell_has_a_new_one(
    shared: SessionManager, code: str, printed: str, name: str | None
) -> None:
    await cell(shared, "mark=1")
    ran = await cell(shared, code)
    assert (ran.text(), ran.text("stderr"), ran.error_name) == (printed, "", name)
    if name == "ExitStatus":
        assert ran.error_value == ("3" if "exit 3" in code else "1")
    after = await cell(shared, "echo z [$mark]")
    assert (after.text(), after.result.success, after.result.environment_recreated) == ("z []\n", True, True)
    assert [chunk.content for chunk in after.of("status")] == ([LOST])
    assert not (await cell(shared, "true")).result.environment_recreated


async def test_a_full_disk_stops_no_cell(shared: SessionManager) -> None:
    full = "cat /dev/zero >full 2>/dev/null; cat /dev/zero >/tmp/full 2>/dev/null; echo filled"
    assert (await cell(shared, full)).text() == "filled\n"
    ran = await cell(shared, "rm full /tmp/full; echo freed")
    assert (ran.text(), ran.result.success) == ("freed\n", True)
