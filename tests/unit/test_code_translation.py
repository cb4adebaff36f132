"""MIME bundles become chunks: the richest type first, the same image once, and nothing but types and text."""

import base64
import json
from typing import Any, Final

import msgspec
import pytest

from aeolus_sandbox import CodeChunk
from aeolus_sandbox.guest import frames
from aeolus_sandbox.guest.frames import FrameError, encode_frame
from aeolus_sandbox.limits import MIB
from aeolus_sandbox.tools.code_interpreter.bundles import MAX_ENTRIES
from aeolus_sandbox.tools.code_interpreter.charts import CHART_TYPE
from aeolus_sandbox.tools.code_interpreter.replies import decode_reply
from aeolus_sandbox.tools.code_interpreter.tables import TABLE_TYPE
from aeolus_sandbox.tools.code_interpreter.translation import _IMAGES_REMEMBERED, Translator

OP: Final = 3
PNG: Final = "iVBORw0KGgo="


def shown(translator: Translator, frame: frames.Frame) -> CodeChunk | None:
    """Return the chunk of a frame that has gone over the wire."""
    return translator.chunk(decode_reply(encode_frame(frame)))


def display(data: dict[str, Any], *, op: int = OP, **settings: Any) -> frames.Display:
    return frames.Display(op=op, data=data, metadata={}, **settings)


def only(data: dict[str, Any], **settings: Any) -> CodeChunk:
    chunk = shown(Translator(OP), display(data, **settings))
    assert chunk is not None
    return chunk


@pytest.mark.parametrize(
    ("name", "stream"), [("stdout", "stdout"), ("stderr", "stderr"), ("anything else", "stdout")]
)
@pytest.mark.parametrize("op", [OP, 0, 99])
def test_text_is_of_its_stream_and_marked_when_it_is_anothers(name: str, stream: str, op: int) -> None:
    chunk = shown(Translator(OP), frames.Stream(op=op, name=name, text="t"))
    assert chunk == CodeChunk(stream=stream, content="t", background=op != OP)


@pytest.mark.parametrize(
    ("types", "richest"),
    [
        (["text/plain", "text/html"], "text/html"),
        (["text/plain", "text/html", "image/svg+xml", "image/png"], "image/png"),
        (["text/plain", "application/json"], "application/json"),
        (["text/latex", "text/plain"], "text/latex"),
        (["text/html", "application/vnd.vegalite.v5+json"], "application/vnd.vegalite.v5+json"),
        (["text/html", "application/vnd.plotly.v1+json", "image/png"], "image/png"),
        (["text/html", "text/plain", TABLE_TYPE], "text/html"),
        (["application/javascript", "application/pdf"], "application/pdf"),
        (["text/plain", "application/vnd.acme+json"], "text/plain"),
        (["application/vnd.acme+json", "application/x-other"], "application/vnd.acme+json"),
    ],
)
def test_richest_type_is_the_content_and_the_others_stay(types: list[str], richest: str) -> None:
    chunk = only({mime: f"as {mime}" for mime in types})
    assert (chunk.mime_type, chunk.content) == (richest, f"as {richest}")
    assert chunk.alternatives == {mime: f"as {mime}" for mime in types if mime != richest}


@pytest.mark.parametrize(
    "value",
    [{"a": [1, None, True, 2.5]}, [1, "x"], ["x", "y"], [], 5, -0.5, None, True, [{"a": "b"}, ["ä"]], {}],
)
def test_values_that_are_no_text_are_json(value: Any) -> None:
    content = only({"application/json": value}).content
    assert json.loads(content) == value


def test_lists_of_lines_are_joined_as_notebooks_do() -> None:
    assert only({"text/html": ["<b>\n", "ä</b>"]}).content == "<b>\nä</b>"


@pytest.mark.parametrize("value", [5, None, {"a": 1}, [1], True])
def test_image_that_is_no_text_is_an_image_without_bytes(value: Any) -> None:
    chunk = only({"image/png": value})
    assert chunk.stream == "image"
    assert isinstance(chunk.data, bytes)


def test_number_keeps_its_digits() -> None:
    line = b'{"frame":"display","op":3,"data":{"application/json":{"n":123456789012345678901234567890.10}}}'
    chunk = Translator(OP).chunk(decode_reply(line))
    assert chunk is not None
    assert chunk.content == '{"n":123456789012345678901234567890.10}'


@pytest.mark.parametrize(
    "name",
    [
        "",
        "plain",
        "../../etc/passwd",
        "text/../../x",
        "text/plain\n",
        "a b/c",
        "\x1b[31m/x",
        "ä/b",
        "x/" + "y" * 200,
    ],
)
def test_names_that_are_no_types_are_left_out(name: str) -> None:
    assert only({name: "x", "text/plain": "t"}).alternatives == {}
    chunk = only({name: "x"})
    assert (chunk.mime_type, chunk.alternatives) == ("text/plain", {})
    assert "left out" in chunk.content  # never silently


def test_empty_bundle_is_no_chunk() -> None:
    assert shown(Translator(OP), display({})) is None


def test_only_so_many_entries_are_looked_at() -> None:
    chunk = only({f"x/{i}": "v" for i in range(10 * MAX_ENTRIES)})
    assert len(chunk.alternatives) == MAX_ENTRIES - 1


def test_large_bundle_gives_the_types_that_are_known() -> None:
    image = "A" * (3 * MIB)
    figure = {"image/png": image, "text/plain": "<Figure>", TABLE_TYPE: "{}", CHART_TYPE: "{}"}
    whole = only(figure)
    assert (whole.stream, whole.content, whole.truncated) == ("image", image, False)
    assert {whole.mime_type, *whole.alternatives} == set(figure)
    chunk = only(figure | {"x/unknown": "B" * MIB})
    assert (chunk.content, chunk.alternatives, chunk.truncated) == (image, whole.alternatives, True)
    unknown = only({"x/unknown": "B" * (2 * MIB)})
    assert "left out" in unknown.content
    assert unknown.truncated


def test_what_was_left_out_is_told_as_data() -> None:
    omitted = {"image/png": 30_000_000, "a/deep": 0}
    chunk = only({"text/plain": "t"}, omitted=omitted)
    assert (chunk.content, chunk.omitted, chunk.truncated) == ("t", omitted, True)
    nothing = only({}, omitted=omitted)
    assert nothing.truncated
    whole = only({"text/plain": "t"})
    assert (whole.omitted, whole.truncated) == ({}, False)


@pytest.mark.parametrize(
    "omitted", [{"../../etc/passwd": 5}, {f"x/{i}": i for i in range(10_000)}, {"\x1b[31m/x": 1, "": 2}]
)
def test_only_types_are_named_as_left_out(omitted: dict[str, int]) -> None:
    chunk = only({"text/plain": "t"}, omitted=omitted)
    assert chunk.truncated
    assert len(chunk.omitted) <= MAX_ENTRIES
    assert all(name.startswith("x/") for name in chunk.omitted)


@pytest.mark.parametrize("value", [b'{"a/b":-1}', b'{"a/b":"1"}', b"[]", b'{"a/b":1e400}', b"5"])
def test_sizes_that_are_none_are_refused(value: bytes) -> None:
    reply = decode_reply(b'{"frame":"display","op":3,"data":{"text/plain":"t"},"omitted":' + value + b"}")
    with pytest.raises(FrameError):
        Translator(OP).chunk(reply)


def test_metadata_is_json_text_by_type() -> None:
    metadata = {"application/json": {"expanded": True}, "isolated": False, "\x1b[31m": 1, "x" * 300: 1}
    chunk = shown(Translator(OP), frames.Result(op=OP, data={"application/json": {}}, metadata=metadata))
    assert chunk is not None
    assert chunk.metadata == {"application/json": '{"expanded":true}', "isolated": "false"}


def test_metadata_that_is_too_long_is_left_out() -> None:
    metadata = {"a": "x" * 100_000}
    chunk = shown(Translator(OP), frames.Result(op=OP, data={"text/plain": "t"}, metadata=metadata))
    assert chunk is not None
    assert (chunk.content, chunk.metadata) == ("t", {})


IMAGE: Final = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes((0, 0, 2, 128, 0, 0, 1, 224)) + bytes(10)
).decode()


@pytest.mark.parametrize(
    ("mime", "content", "hint", "size"),
    [
        ("image/png", IMAGE, {}, (640, 480)),
        ("image/png", IMAGE, {"width": 320, "height": 240}, (640, 480)),
        ("image/png", PNG, {"width": 320, "height": 240}, (320, 240)),
        ("image/tiff", PNG, {"width": 320, "height": 240}, (320, 240)),
        ("image/png", PNG, {"width": 320}, (None, None)),
        ("image/png", PNG, {"width": -1, "height": 240}, (None, None)),
        ("image/png", PNG, {"width": "100%", "height": 10**30}, (None, None)),
        ("image/png", PNG, [1], (None, None)),
        ("text/html", "<p>", {"width": 320, "height": 240}, (None, None)),
    ],
)
def test_image_tells_its_size(mime: str, content: str, hint: Any, size: tuple[int, int] | None) -> None:
    chunk = shown(Translator(OP), frames.Result(op=OP, data={mime: content}, metadata={mime: hint}))
    assert chunk is not None
    assert (chunk.width, chunk.height) == size


def test_same_image_is_shown_once_in_a_cell() -> None:
    translator = Translator(OP)
    figure = {"image/png": PNG, "text/plain": "<Figure>"}
    result = shown(translator, frames.Result(op=OP, data=figure, metadata={}))
    assert result is not None
    assert (result.stream, result.alternatives) == ("image", {"text/plain": "<Figure>"})
    assert shown(translator, display({"image/png": PNG + "\n", "text/plain": "<Figure>"})) is None
    assert shown(translator, display({"image/png": PNG.replace("K", "L")})) is not None
    assert shown(Translator(OP + 1), display(figure, op=OP + 1)) is not None


def test_update_may_show_an_image_again() -> None:
    translator = Translator(OP)
    frames_shown = [
        shown(translator, display({"image/png": data}, display_id="d", update=i > 0))
        for i, data in enumerate(["AAAA", "BBBB", "AAAA"])
    ]
    assert [chunk and chunk.content for chunk in frames_shown] == ["AAAA", "BBBB", "AAAA"]
    assert frames_shown[2] is not None
    assert (frames_shown[2].display_id, frames_shown[2].update) == ("d", True)


def test_flood_of_images_is_not_remembered_for_ever() -> None:
    translator = Translator(OP)
    for i in range(2 * _IMAGES_REMEMBERED):
        assert shown(translator, display({"image/png": f"{i:08}"})) is not None
    assert len(translator._images) == _IMAGES_REMEMBERED


def test_text_results_repeat_as_often_as_they_come() -> None:
    translator = Translator(OP)
    assert all(shown(translator, display({"text/plain": "same"})) is not None for _ in range(3))


def test_error_shows_its_traceback_or_its_words() -> None:
    error = frames.Error(op=OP, name="E", value="v", traceback=["a", "b"])
    chunks = [shown(Translator(OP), each) for each in (error, msgspec.structs.replace(error, traceback=[]))]
    assert [chunk and chunk.content for chunk in chunks] == ["a\nb", "E: v"]


def test_traceback_that_is_too_long_says_so() -> None:
    lines = ["x" * MIB, "y" * MIB]
    chunk = shown(Translator(OP), frames.Error(op=OP, name="E", value="v", traceback=lines))
    assert chunk is not None
    assert chunk.content == f"[the traceback of {2 * MIB + 7} bytes is left out]"
    assert chunk.truncated


def test_traceback_that_the_guest_has_cut_says_so() -> None:
    for truncated in (True, False):
        frame = frames.Error(op=OP, name="E", value="v", traceback=["a"], truncated=truncated)
        chunk = shown(Translator(OP), frame)
        assert chunk is not None
        assert chunk.truncated is truncated


@pytest.mark.parametrize(
    "frame", [frames.Done(op=OP, status="ok"), frames.KernelDied(op=OP), frames.Fault(message="m")]
)
def test_news_of_the_guest_is_no_chunk(frame: frames.Frame) -> None:
    assert shown(Translator(OP), frame) is None


@pytest.mark.parametrize("data", [b"5", b"[]", b'"text"', b"null", b'{"text/plain":"\xff"}'])
def test_bundle_that_is_none_is_refused(data: bytes) -> None:
    reply = decode_reply(b'{"frame":"display","op":3,"data":' + data + b"}")
    with pytest.raises(FrameError):
        Translator(OP).chunk(reply)
