"""How the command line shows the kinds of chunks that are no plain text."""

import base64
from pathlib import Path

import pytest

from aeolus_sandbox import CodeChunk
from aeolus_sandbox.cli.present import ForPeople, ImageFolder


def shown(capfd: pytest.CaptureFixture[str], chunk: CodeChunk, out: Path | None = None) -> tuple[str, str]:
    """Return what showing a chunk prints on stdout and stderr."""
    ForPeople(None if out is None else ImageFolder(out)).chunk(chunk)
    captured = capfd.readouterr()
    return captured.out, captured.err


def test_question_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = shown(capfd, CodeChunk(stream="input", content="name?\x1b[2J "))
    assert out == ""
    assert "asks for input: name?" in err
    assert "\x1b" not in err


def test_bytes_without_a_text_are_named_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    pdf = CodeChunk(stream="display", content="JVBERi0=", mime_type="application/pdf")
    assert shown(capfd, pdf) == ("[application/pdf, 5 bytes]\n", "")
    with_text = pdf.model_copy(update={"alternatives": {"text/plain": "a page"}})
    assert shown(capfd, with_text) == ("a page\n", "")


def test_what_was_left_out_is_a_remark(capfd: pytest.CaptureFixture[str]) -> None:
    chunk = CodeChunk(stream="display", content="t", omitted={"image/png": 30_000_000, "a/b": 0})
    out, err = shown(capfd, chunk)
    assert out == "t\n"
    assert "image/png, a/b" in err


def test_image_is_saved_and_its_size_told(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    content = base64.b64encode(b"picture").decode()
    chunk = CodeChunk(stream="image", content=content, mime_type="image/png", width=640, height=480)
    out, err = shown(capfd, chunk, tmp_path)
    assert out == ""
    assert "image-001.png (640 x 480)" in err
    assert (tmp_path / "image-001.png").read_bytes() == b"picture"
    assert "not saved (640 x 480)" in shown(capfd, chunk)[1]
