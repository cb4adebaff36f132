"""Files go below the workspace and nowhere else, and come from nowhere they should not."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.limits import MIB
from aeolus_sandbox.tools.files import FileContent, check_files, workspace_path


class _Input(BaseModel):
    files: dict[str, FileContent]


@pytest.mark.parametrize(
    ("path", "normal"),
    [("héllo wörld.txt", "héllo wörld.txt"), ("a/b/c.txt", "a/b/c.txt"), ("./a//b", "a/b"), ("-x", "-x"), ("..a", "..a"),
     ("a b/'c'", "a b/'c'"), ("...", "..."), ("new\nline", "new\nline")],
)  # fmt: skip
def test_a_path_below_the_workspace_is_taken(path: str, normal: str) -> None:
    assert workspace_path(path) == normal


@pytest.mark.parametrize(
    "path",
    ["../../etc/x", "/etc/x", "", ".", "./", "..", "a/..", "a/../b", "a/", "//x", "a\0b", "x" * 256, "a/" * 2100 + "x",
     "é" * 128, "\ud800"],
)  # fmt: skip
def test_a_path_that_leaves_it_or_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError):
        workspace_path(path)
    with pytest.raises(ConfigurationError):
        check_files({path: b""}, max_bytes=MIB)


@given(path=st.text(alphabet=st.sampled_from("./ab\0é-"), max_size=12) | st.text(max_size=12))
def test_any_path_stays_below_the_workspace_or_is_refused(path: str) -> None:
    try:
        normal = workspace_path(path)
    except ConfigurationError:
        return
    resolved = os.path.normpath(os.path.join("/workspace", normal))  # noqa: PTH118 - as the kernel would
    assert resolved.startswith("/workspace/")
    assert resolved == f"/workspace/{normal}"


async def content_of(files: Mapping[str, bytes | Path], *, max_bytes: int = MIB) -> dict[str, bytes]:
    checked = check_files(files, max_bytes=max_bytes)
    return {file.path: b"".join([piece async for piece in file.pieces()]) for file in checked}


async def test_the_reported_files_are_sent_unchanged(tmp_path: Path) -> None:
    big, content = tmp_path / "big", os.urandom(3 * MIB + 1)
    big.write_bytes(content)
    files: dict[str, bytes | Path] = {"héllo wörld.txt": b"abc", "a/b/c.txt": b"d", "empty": b"", "big": big}
    assert await content_of(files, max_bytes=30 * MIB) == {**files, "big": content}


async def test_a_source_that_is_replaced_or_cut_while_it_is_sent_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"

    def replace_by_another() -> None:
        (tmp_path / "other").write_bytes(bytes(3000))
        (tmp_path / "other").rename(source)

    def replace_by_a_link() -> None:
        source.unlink()
        source.symlink_to("/etc/hostname")

    for change in (replace_by_another, replace_by_a_link, lambda: os.truncate(source, 1500), source.unlink):
        source.unlink(missing_ok=True)
        source.write_bytes(bytes(3000))
        [file] = check_files({"x": source}, max_bytes=MIB)
        pieces = file.pieces(1000)
        await anext(pieces)
        change()
        with pytest.raises(ConfigurationError, match="source"):
            await anext(pieces)


async def test_what_is_appended_to_a_source_while_it_is_sent_is_not_sent(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"1234")
    [file] = check_files({"x": source}, max_bytes=MIB)
    source.write_bytes(b"123456789")
    assert [piece async for piece in file.pieces(3)] == [b"123", b"4"]


def test_a_link_a_pipe_and_a_folder_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", ".", "missing"):
        with pytest.raises(ConfigurationError, match=r"links are not followed|not a regular file"):
            check_files({"x": tmp_path / name}, max_bytes=MIB)


def test_more_than_the_workspace_holds_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(600))
    assert len(check_files({"a": bytes(400), "b": tmp_path / "f"}, max_bytes=1000)) == 2
    too_much: list[dict[str, bytes | Path]] = [
        {"a": bytes(401), "b": tmp_path / "f"},
        {"b": tmp_path / "f", "a": bytes(401)},
        {"a": bytes(1001)},
    ]
    for files in too_much:
        with pytest.raises(ConfigurationError, match="larger than the workspace"):
            check_files(files, max_bytes=1000)


async def test_two_names_of_one_file_are_not_written_twice() -> None:
    assert await content_of({"a/b": b"1", "a//b": b"2"}) == {"a/b": b"2"}


async def test_text_is_content_and_never_a_path_of_the_host() -> None:
    read = _Input.model_validate_json('{"files": {"a": "/etc/passwd", "b": {"base64": "/w=="}}}')
    assert await content_of(read.files) == {"a": b"/etc/passwd", "b": b"\xff"}


@pytest.mark.parametrize(
    "content", [1, None, [], {"base64": "?"}, {"path": "/etc/passwd"}, {"base64": "", "x": 1}]
)
def test_what_is_no_content_is_refused(content: object) -> None:
    with pytest.raises(ValidationError):
        _Input.model_validate({"files": {"a": content}})


@given(content=st.binary(max_size=40))
def test_content_survives_being_written_as_json(content: bytes) -> None:
    written = _Input(files={"a": content}).model_dump_json()
    assert _Input.model_validate_json(written).files == {"a": content}


def test_a_host_path_cannot_be_written_as_json() -> None:
    with pytest.raises(Exception, match="give its content"):
        _Input(files={"a": Path("/x")}).model_dump_json()
