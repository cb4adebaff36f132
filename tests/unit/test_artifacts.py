"""What a result says of files is true, bounded, and leads nobody out of a folder."""

import mimetypes
from typing import Any, Final

import pytest

from aeolus_sandbox import ExitStatus, GuestProtocolError
from aeolus_sandbox.errors import ArtifactError
from aeolus_sandbox.guest import frames
from aeolus_sandbox.tools.code_interpreter.artifacts import Artifact, media_type
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from aeolus_sandbox.tools.code_interpreter.models import CodeResult
from aeolus_sandbox.tools.code_interpreter.workspace import Listing, list_changes, read_file
from tests.unit.scripted_guest import ScriptedProcess, new_cell, read_all, text

PNG: Final = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(
    ("path", "head", "mime_type"),
    [("a.csv", b"1,2", "text/csv"), ("A.JSON", b"{}", "application/json"), ("plot", PNG, "image/png"),
     ("plot.txt", PNG, "image/png"), ("fake.png", b"<script>", "application/octet-stream"),
     ("x.svg", b"<svg", "image/svg+xml"), ("p.webp", b"RIFF1234WEBPVP8", "image/webp"),
     ("p.webp", b"RIFF1234WAVE", "application/octet-stream"), ("notes", b"plain", "text/plain"),
     ("cut", "é".encode()[:1].rjust(64, b"x"), "text/plain"), ("raw", b"\xff\xfe\x00", "application/octet-stream"),
     ("nul", b"a\x00b", "application/octet-stream"), ("empty", b"", "application/octet-stream"),
     ("m.md", b"# x", "text/markdown"), ("data:text/html,x", b"", "application/octet-stream")],
)  # fmt: skip
def test_a_type_is_told_by_the_first_bytes_and_then_by_the_name(
    path: str, head: bytes, mime_type: str
) -> None:
    assert media_type(path, head) == mime_type


def test_types_that_a_machine_adds_change_nothing() -> None:
    mimetypes.add_type("text/evil", ".csv")
    assert media_type("a.csv", b"1") == "text/csv"
    mimetypes.add_type("text/csv", ".csv")


def artifact(path: str, change: Any = "created") -> Artifact:
    return Artifact(path=path, change=change, size_bytes=12345, mime_type="text/csv")


def test_a_result_in_words_names_files_on_one_line_and_counts_the_rest() -> None:
    files = [artifact("a\nb"), artifact("gone", "deleted"), *(artifact(f"{n}.csv") for n in range(30))]
    result = CodeResult(
        success=True,
        status=ExitStatus(reason="exited", code=0),
        execution_time_ms=1,
        artifacts=tuple(files),
        artifacts_left_out=7,
    )
    _, line, _ = result.as_text().splitlines()
    assert line.startswith("[files: 'a\\nb' (created, 12,345 bytes, text/csv); gone (deleted); 0.csv")
    assert line.endswith("; 19 more files]")
    assert CodeResult.model_validate_json(result.model_dump_json()) == result
    hidden = result.with_output("withheld")
    assert (hidden.artifacts, hidden.artifacts_left_out) == ((), 39)


def changes(*paths: str, op: int = 1, **settings: Any) -> frames.Changes:
    files = [frames.FileChange(path=path, change="created", size_bytes=1) for path in paths]
    return frames.Changes(op=op, files=files, **settings)


async def test_changes_come_as_the_guest_tells_them(process: ScriptedProcess, kernel: Kernel) -> None:
    process.say(text(9, "late"), changes("a", "b/c", "new\nline", "...", left_out=3, complete=False))
    listing = await list_changes(kernel, timeout_s=1)
    assert [found.path for found in listing.artifacts] == ["a", "b/c", "new\nline", "..."]
    assert (listing.left_out, listing.complete) == (3, False)


def done(op: int, status: str = "ok", message: str = "", *, changes_follow: bool = False) -> frames.Done:
    return frames.Done(op=op, status=status, message=message, changes_follow=changes_follow)


HOSTILE: Final = {
    "way up": changes("../x"),
    "way up inside": changes("a/../../x"),
    "absolute": changes("/etc/passwd"),
    "not normal": changes("a//b"),
    "dot": changes("./a"),
    "nothing": changes(""),
    "nul": changes("a\0b"),
    "long name": changes("x" * 256),
    "long path": changes("a/" * 3000 + "x"),
    "too many": changes(*map(str, range(1001))),
    "too long": changes(*["/".join(["\u0001" * 250] * 2)] * 1000),
    "unknown change": frames.Changes(op=1, files=[frames.FileChange(path="a", change="stolen")]),
    "negative size": frames.Changes(
        op=1, files=[frames.FileChange(path="a", change="created", size_bytes=-1)]
    ),
    "long head": frames.Changes(op=1, files=[frames.FileChange(path="a", change="created", head=bytes(65))]),
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
async def test_what_no_guest_of_ours_says_of_files_ends_the_conversation(
    process: ScriptedProcess, kernel: Kernel, said: frames.Changes
) -> None:
    process.say(said)
    with pytest.raises(GuestProtocolError):
        await list_changes(kernel, timeout_s=1)
    assert not kernel.is_usable


async def test_a_guest_that_does_not_answer_costs_the_list_and_not_the_kernel(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    assert await list_changes(kernel, timeout_s=0.01) == Listing()
    assert kernel.is_usable
    process.say(changes("late"))
    process.say(frames.Changes(op=2, files=[]))
    assert await list_changes(kernel, timeout_s=1) == Listing(complete=True)


async def test_changes_that_come_with_the_end_of_the_code_are_not_asked_for(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(done(1, changes_follow=True), text(0, "late"), changes("a"))
    cell = await new_cell(kernel)
    assert await read_all(cell) == []
    assert cell.promised_changes == 1
    listing = await list_changes(kernel, timeout_s=1, promised=cell.promised_changes)
    assert [found.path for found in listing.artifacts] == ["a"]
    assert process.requests == [frames.Execute(op=1, code="code", list_changes=True)]


@pytest.mark.parametrize("end", [done(1, status="aborted"), frames.KernelDied(op=1, signal=9)])
async def test_an_end_that_promises_no_changes_leaves_them_to_be_asked_for(
    process: ScriptedProcess, kernel: Kernel, end: frames.Frame
) -> None:
    process.say(end)
    cell = await new_cell(kernel)
    await read_all(cell)
    process.say(changes("a", op=2))
    listing = await list_changes(kernel, timeout_s=1, promised=cell.promised_changes)
    assert [found.path for found in listing.artifacts] == ["a"]
    assert process.requests[1:] == [frames.ListChanges(op=2)]


async def test_changes_that_were_promised_and_do_not_come_cost_the_list_and_not_the_kernel(
    kernel: Kernel,
) -> None:
    assert await list_changes(kernel, timeout_s=0.01, promised=1) == Listing()
    assert kernel.is_usable


async def test_a_file_comes_in_pieces_and_in_order(process: ScriptedProcess, kernel: Kernel) -> None:
    process.say(
        frames.FilePiece(op=1, data=b"ab"), text(9, "late"), frames.FilePiece(op=1, data=b"c"), done(1)
    )
    assert [piece async for piece in read_file(kernel, "a//b", max_bytes=3)] == [b"ab", b"c"]
    assert process.requests == [frames.ReadFile(op=1, path="a/b", max_bytes=3)]


async def test_more_of_a_file_than_was_asked_for_ends_the_conversation(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(*(frames.FilePiece(op=1, data=b"ab") for _ in range(3)))
    with pytest.raises(GuestProtocolError, match="more of a file"):
        _ = [piece async for piece in read_file(kernel, "a", max_bytes=4)]
    assert not kernel.is_usable


async def test_a_file_that_is_refused_is_named_with_the_reason(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(done(1, status="refused", message="No such file or directory"))
    with pytest.raises(ArtifactError, match=r"'a'.*No such file"):
        _ = [piece async for piece in read_file(kernel, "a", max_bytes=4)]
    assert kernel.is_usable
    assert len(process.requests) == 1


async def test_a_read_that_is_given_up_is_interrupted_and_its_rest_passed_over(
    process: ScriptedProcess, kernel: Kernel
) -> None:
    process.say(frames.FilePiece(op=1, data=b"ab"), frames.FilePiece(op=1, data=b"cd"))
    pieces = read_file(kernel, "a", max_bytes=100)
    assert await anext(pieces) == b"ab"
    await pieces.aclose()
    assert process.requests[1:] == [frames.Interrupt(op=1)]
    process.say(done(1, status="interrupted"), frames.FilePiece(op=2, data=b"new"), done(2))
    assert [piece async for piece in read_file(kernel, "b", max_bytes=100)] == [b"new"]
