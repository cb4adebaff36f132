"""What the terminal tool takes and gives survives every way it can be sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.limits import LimitName
from aeolus_sandbox.tools.terminal.models import (
    TerminalChunk,
    TerminalCodec,
    TerminalInput,
    TerminalResult,
    TerminalStream,
)

streams = st.sampled_from(["stdout", "stderr", "combined"])


def _result(**fields: object) -> TerminalResult:
    base: dict[str, object] = {
        "exit_code": 0,
        "status": ExitStatus(reason="exited", code=0),
        "duration_ms": 1.5,
        "output": "",
        "stdout_bytes": 0,
        "stderr_bytes": 0,
        "invalid_bytes": 0,
    }
    return TerminalResult.model_validate(base | fields)


@given(stream=streams, data=st.binary(max_size=30))
def test_a_chunk_comes_out_of_the_spool_as_it_went_in(stream: TerminalStream, data: bytes) -> None:
    chunk = TerminalChunk(stream=stream, data=data)
    again = TerminalCodec().decode(*TerminalCodec().encode(chunk))
    assert (again.stream, again.data, again.text) == (stream, data, data.decode("utf-8", "replace"))


@given(stream=streams, text=st.text(max_size=30))
def test_a_chunk_survives_json_with_its_text(stream: TerminalStream, text: str) -> None:
    chunk = TerminalChunk(stream=stream, data=text.encode())
    again = TerminalChunk.model_validate_json(chunk.model_dump_json())
    assert (again.stream, again.text, again.data) == (stream, text, text.encode())


def test_a_chunk_as_json_says_only_what_a_reader_needs() -> None:
    chunk = TerminalChunk(stream="stdout", data=b"caf\xc3\xa9 \xfe")
    assert chunk.model_dump() == {"stream": "stdout", "text": "café \ufffd"}
    chunk.dropped_bytes = 7
    assert chunk.model_dump()["dropped_bytes"] == 7


@given(parts=st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=5)), min_size=1))
def test_combined_is_everything_in_order(parts: list[tuple[TerminalStream, bytes]]) -> None:
    combined = TerminalChunk.combined([TerminalChunk(stream=stream, data=data) for stream, data in parts])
    assert combined.data == b"".join(data for _, data in parts)
    streams = {stream for stream, _ in parts}
    assert combined.stream == (streams.pop() if len(streams) == 1 else "combined")


def test_a_command_line_is_for_the_shell_and_a_list_is_not() -> None:
    assert TerminalInput(command="echo $HOME").argv == ("sh", "-c", "echo $HOME")
    assert TerminalInput(command=("echo", "$HOME")).argv == ("echo", "$HOME")
    assert TerminalInput.model_validate_json('{"command": ["a", "b"]}').argv == ("a", "b")


@pytest.mark.parametrize(
    "fields",
    [{"command": ""}, {"command": []}, {}, {"command": "x", "timeout_s": 0}, {"command": "x", "cols": 0},
     {"command": "x", "rows": 65536}, {"command": "x", "shell": True}],
)  # fmt: skip
def test_nonsense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TerminalInput.model_validate(fields)


def test_an_input_survives_json() -> None:
    asked = TerminalInput(command="x", files={"a": b"\xff", "b": b"text"}, env={"A": "b"}, timeout_s=3)
    assert TerminalInput.model_validate_json(asked.model_dump_json()) == asked


def test_a_result_in_words_is_never_empty() -> None:
    assert _result().as_text() == "(no output)\n[exited with code 0]"
    assert _result(output=" \n").as_text() == "(no output)\n[exited with code 0]"
    ended = ExitStatus(reason="timed_out", code=137, limit_hit=LimitName.WALL_TIME)
    assert _result(output="a\n", status=ended).as_text() == "a\n[timed out with code 137 (wall time limit)]"


def test_a_result_survives_json() -> None:
    result = _result(output="é", status=ExitStatus(reason="killed", code=137), exit_code=137)
    assert TerminalResult.model_validate_json(result.model_dump_json()) == result
