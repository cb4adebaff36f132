"""What a `MessagesServer` can reply: answers whole or streamed, errors, and connections that end too soon."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

_MESSAGE: Final[dict[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-haiku-4-5",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
}
_call_numbers: Final = itertools.count(1)


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: dict[str, str]
    """With their names in lower case."""
    body: dict[str, Any]

    @property
    def streamed(self) -> bool:
        """Whether the answer is to come as a stream of events."""
        return self.body.get("stream") is True


@dataclass(frozen=True)
class Reply:
    """What is answered, and how the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    ends: Literal["whole", "before", "inside", "never"] = "whole"
    """`before` cuts the connection with nothing sent, `inside` before the end; `never` waits for the client to go."""
    pieces: Sequence[bytes | asyncio.Event] | None = None
    """A body that is sent piece by piece; an event among them is waited for."""


class Ending(Enum):
    """How a stream ends before its answer is whole."""

    CUT = "cut"
    """The connection is cut."""
    END = "end"
    """The stream ends in order, as if that were all."""
    SILENCE = "silence"
    """Nothing follows, and the connection stays open until the client goes."""


@dataclass(frozen=True)
class Block:
    """A block of a streamed answer."""

    start: dict[str, Any]
    deltas: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class StreamError:
    """An error in the middle of a stream, which ends with it."""

    kind: str
    message: str


Item = str | Block | bytes | asyncio.Event | StreamError | Ending
"""A part of a streamed answer: a text in one piece, a block, an event's bytes as they are, a wait, or an end."""


def says(*texts: str, **fields: Any) -> Reply:
    """Return a whole answer with these texts; `fields` replace those of the message."""
    message = _MESSAGE | {
        "content": [{"type": "text", "text": text} for text in texts],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return Reply(body=json.dumps(message | fields).encode())


def fails(status: int, kind: str = "api_error", message: str = "no", **headers: str) -> Reply:
    """Return an error of the service; headers are given with `_` for `-`, such as `retry_after="3"`."""
    return Reply(
        status,
        json.dumps(_error(kind, message)).encode(),
        {name.replace("_", "-"): headers[name] for name in headers},
    )


def streams(
    *items: Item, stop_reason: str | None = None, usage: dict[str, int] | None = None, **headers: str
) -> Reply:
    """Return a streamed answer.

    A block that an error or an end follows is left open, as a service leaves it that breaks down in the middle of one.

    Args:
        items: The parts, in their order; nothing follows an end or an error.
        stop_reason: Why the model stops; None: `tool_use` where it calls a tool, else `end_turn`.
        usage: Counts of tokens at the end; they are joined to `input_tokens` 10 and `output_tokens` 1 at the start.
        headers: Further ones, with `_` for `-`.
    """
    calls = any(isinstance(item, Block) and item.start["type"] == "tool_use" for item in items)
    reason = stop_reason or ("tool_use" if calls else "end_turn")
    sent = {name.replace("_", "-"): headers[name] for name in headers}
    return Reply(
        headers={"content-type": "text/event-stream; charset=utf-8"} | sent,
        ends=_how_it_ends(items),
        pieces=tuple(_pieces(items, reason, {"output_tokens": 5} | (usage or {}))),
    )


def text_block(*pieces: str) -> Block:
    """Return a text that comes in these pieces."""
    return Block(
        {"type": "text", "text": ""}, tuple({"type": "text_delta", "text": piece} for piece in pieces)
    )


def thinking_block(*pieces: str, signature: str = "signed") -> Block:
    """Return thinking that comes in these pieces, and its signature last."""
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = {"type": "signature_delta", "signature": signature}
    return Block({"type": "thinking", "thinking": "", "signature": ""}, (*deltas, signed))


def redacted_block(data: str) -> Block:
    """Return thinking that only the service can read."""
    return Block({"type": "redacted_thinking", "data": data})


def tool_block(
    name: str,
    arguments: dict[str, Any] | None = None,
    *,
    id: str | None = None,  # noqa: A002 - the API's name
    fragments: Sequence[str] | None = None,
) -> Block:
    """Return a call of a tool.

    Args:
        name: The tool.
        arguments: Its input, which comes as JSON in one fragment.
        id: Of the call; None: one that no other call has.
        fragments: The JSON, or what stands in its place, in these pieces; instead of `arguments`.
    """
    start = {
        "type": "tool_use",
        "id": id or f"toolu_{next(_call_numbers):06}",
        "name": name,
        "input": {},
    }
    pieces = fragments if fragments is not None else (json.dumps(arguments or {}),)
    return Block(start, tuple({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def error_event(kind: str = "overloaded_error", message: str = "Overloaded") -> StreamError:
    """Return an error that comes although the status was 200."""
    return StreamError(kind, message)


def raw_event(name: str, data: object) -> bytes:
    """Return the bytes of an event (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


PING: Final = raw_event("ping", {"type": "ping"})
NEVER: Final = Reply(ends="never")
CUT_BEFORE: Final = Reply(ends="before")
CUT_INSIDE: Final = Reply(body=says("half of").body, ends="inside")


def _how_it_ends(items: Sequence[Item]) -> Literal["whole", "inside", "never"]:
    if Ending.CUT in items:
        return "inside"
    return "never" if Ending.SILENCE in items else "whole"


def _pieces(
    items: Sequence[Item], stop_reason: str, usage: dict[str, int]
) -> Iterator[bytes | asyncio.Event]:
    if not items or not isinstance(items[0], StreamError):  # an overload is also told before anything else
        started = _MESSAGE | {"usage": {"input_tokens": 10, "output_tokens": 1}}
        yield raw_event("message_start", {"type": "message_start", "message": started})
    index = 0
    for item, following in itertools.zip_longest(items, items[1:]):
        match item:
            case bytes() | asyncio.Event():
                yield item
            case StreamError():
                yield raw_event("error", _error(item.kind, item.message))
                return
            case Ending():
                return
            case _:
                block = text_block(item) if isinstance(item, str) else item
                yield from _events(block, index, closed=not isinstance(following, StreamError | Ending))
                index += 1
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    yield raw_event("message_delta", {"type": "message_delta", "delta": delta, "usage": usage})
    yield raw_event("message_stop", {"type": "message_stop"})


def _events(block: Block, index: int, *, closed: bool) -> Iterator[bytes]:
    start = {"type": "content_block_start", "index": index, "content_block": block.start}
    yield raw_event("content_block_start", start)
    for delta in block.deltas:
        yield raw_event(
            "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        )
    if closed:
        yield raw_event("content_block_stop", {"type": "content_block_stop", "index": index})


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}
