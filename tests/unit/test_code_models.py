"""What the code interpreter takes and gives: checked on the way in, whole on the way out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aeolus_sandbox import (
    CodeChunk,
    CodeError,
    CodeInterpreterInput,
    CodeResult,
    ExitStatus,
    JsonCodec,
    LimitName,
)
from aeolus_sandbox.tools.code_interpreter.models import MAX_CODE_CHARACTERS

OK = ExitStatus(reason="exited", code=0)


@given(st.text(st.characters(codec=None)))  # lone surrogates included
def test_any_text_is_code_and_becomes_valid_unicode(code: str) -> None:
    taken = CodeInterpreterInput(code=code).code
    taken.encode()
    assert taken == code or "\ufffd" in taken or "\ud800" <= min(c for c in code if c >= "\ud800") <= "\udfff"


def test_lone_surrogate_becomes_the_replacement_character() -> None:
    assert CodeInterpreterInput(code="a\ud800b").code == "a\ufffdb"
    assert CodeInterpreterInput(code="\U0001f600").code == "\U0001f600"


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": None},
        {"code": 5},
        {"code": "x" * (MAX_CODE_CHARACTERS + 1)},
        {"code": "1", "timeout_s": 0},
        {"code": "1", "timeout_s": -1},
        {"code": "1", "timeout_s": float("nan")},
        {"code": "1", "session_id": ""},
        {"code": "1", "session_id": "x" * 201},
        {"code": "1", "files": {"a": 5}},
        {"code": "1", "files": {"a": {"base64": "!"}}},
        {"code": "1", "unknown": 1},
    ],
)
def test_wrong_inputs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        CodeInterpreterInput.model_validate(wrong)


@pytest.mark.parametrize(
    ("mime", "content", "data"),
    [
        ("image/png", "iVBORw0KGgo=", b"\x89PNG\r\n\x1a\n"),
        ("image/png", "iVBORw0K\nGgo=\n", b"\x89PNG\r\n\x1a\n"),
        ("image/png", "not base64", b""),
        ("image/png", "ä", b""),
        ("image/png", "", b""),
        ("image/svg+xml", "<svg>ä</svg>", "<svg>ä</svg>".encode()),
        ("text/html", "<b>ä</b>", "<b>ä</b>".encode()),
        ("application/pdf", "JVBERi0=", b"%PDF-"),
        ("audio/wav", "UklGRg==", b"RIFF"),
    ],
)
def test_data_of_a_chunk_is_bytes_whatever_the_kernel_sent(mime: str, content: str, data: bytes) -> None:
    given_data = CodeChunk(stream="image", content=content, mime_type=mime).data
    assert given_data == data or (content == "not base64" and isinstance(given_data, bytes))


@given(
    content=st.text(),
    alternatives=st.dictionaries(st.text(), st.text(), max_size=3),
    background=st.booleans(),
    display_id=st.none() | st.text(),
)
def test_chunks_survive_the_spool(
    content: str, alternatives: dict[str, str], background: bool, display_id: str | None
) -> None:
    chunk = CodeChunk(
        stream="display",
        content=content,
        alternatives=alternatives,
        background=background,
        display_id=display_id,
    )
    codec = JsonCodec(CodeChunk)
    assert codec.decode(*codec.encode(chunk)) == chunk


def test_result_in_words_says_everything_that_there_is() -> None:
    result = CodeResult(
        success=False,
        status=ExitStatus(reason="timed_out", code=1, limit_hit=LimitName.WALL_TIME),
        execution_time_ms=1,
        output="printed\n",
        result="42",
        images=2,
        error=CodeError(name="KeyboardInterrupt", value="stop"),
    )
    assert result.as_text() == (
        "printed\n42\n[2 images]\nKeyboardInterrupt: stop\n[timed out with code 1 (wall time limit)]"
    )


@pytest.mark.parametrize("output", ["", "\n", "  \n\n"])
def test_result_in_words_is_never_empty(output: str) -> None:
    result = CodeResult(success=True, status=OK, execution_time_ms=1, output=output)
    assert result.as_text() == "(no output)\n[exited with code 0]"


def test_result_survives_json() -> None:
    result = CodeResult(
        success=False,
        status=OK,
        execution_time_ms=1.5,
        error=CodeError(name="E", value="\0", traceback=("a",)),
    )
    assert CodeResult.model_validate_json(result.model_dump_json()) == result


def test_texts_are_changed_and_pictures_stay() -> None:
    chunk = CodeChunk(
        stream="display",
        content="aGVsbG8=",
        mime_type="image/png",
        alternatives={"text/plain": "hello", "image/jpeg": "aGVsbG8=", "image/svg+xml": "<svg>hello</svg>"},
    )
    changed = chunk.mapped(lambda text: text.replace("hello", "bye").replace("aGVs", "XXXX"))
    assert (changed.content, changed.data) == (chunk.content, b"hello")
    assert changed.alternatives == {
        "text/plain": "bye",
        "image/jpeg": "aGVsbG8=",
        "image/svg+xml": "<svg>bye</svg>",
    }
