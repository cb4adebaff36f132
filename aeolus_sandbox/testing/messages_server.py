"""`MessagesServer`: a local server that speaks the Messages API, with everything that goes wrong with one.

::

    async with MessagesServer(
        streams("Let me look.", tool_block("terminal", {"command": "ls"})),
        fails(529, "overloaded_error"),
        streams("There are ", "two files."),
        strict=True,
    ) as server:
        agent = Agent(model="anthropic/claude-haiku-4-5", base_url=server.url, api_key=..., ...)

What it can reply is in `messages_replies`; what it refuses, as the real API does, is in `messages_rules`.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from aeolus_sandbox.testing.messages_replies import (
    CUT_BEFORE,
    CUT_INSIDE,
    NEVER,
    PING,
    Block,
    Ending,
    Item,
    Reply,
    Request,
    StreamError,
    error_event,
    fails,
    raw_event,
    redacted_block,
    says,
    streams,
    text_block,
    thinking_block,
    tool_block,
)
from aeolus_sandbox.testing.messages_rules import refusal

__all__ = [
    "CUT_BEFORE",
    "CUT_INSIDE",
    "NEVER",
    "PING",
    "Block",
    "Ending",
    "Item",
    "MessagesServer",
    "Reply",
    "Request",
    "StreamError",
    "error_event",
    "fails",
    "raw_event",
    "redacted_block",
    "says",
    "streams",
    "text_block",
    "thinking_block",
    "tool_block",
]

_END_TIMEOUT_S: Final = 10.0


class MessagesServer:
    """Answers on loopback with the given replies, in their order; a reply may be a function of the request."""

    def __init__(self, *replies: Reply | Callable[[Request], Reply], strict: bool = False) -> None:
        """Say what to reply.

        Args:
            replies: None: every request is answered with a short text.
            strict: Whether every reply is given exactly once, and no request may be refused by the rules of the API:
                leaving the context then raises an AssertionError that says what was different. Else the last reply is
                given again and again.
        """
        self.replies = list(replies) or [says("a summary")]
        """What is still to be replied."""
        self.requests: list[Request] = []
        """What was asked, also what was refused."""
        self.refusals: list[str] = []
        """Why requests were refused by the rules of the API, or had no reply left."""
        self.asked = asyncio.Event()
        """Set when something has been asked."""
        self.hung_up = asyncio.Event()
        """Set when a client has gone before its reply was whole."""
        self._strict = strict
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        async with asyncio.timeout(_END_TIMEOUT_S):
            await self._idle.wait()
        if kind is None and self._strict:
            self.assert_consumed()

    def assert_consumed(self) -> None:
        """Check that every reply was given, and that no request was refused by the rules of the API.

        Raises:
            AssertionError: There are replies left, or a request was refused; only with `strict`, replies are used up.
        """
        if self.refusals:
            msg = f"the server has refused requests: {'; '.join(self.refusals)}"
            raise AssertionError(msg)
        if self._strict and self.replies:
            msg = f"{len(self.replies)} replies have not been asked for, after {len(self.requests)} requests"
            raise AssertionError(msg)

    @property
    def url(self) -> str:
        """Where it is, while the context is open; the base URL for a client."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        self._idle.clear()
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client hung up
        finally:
            writer.transport.abort()
            self._connections.discard(writer)
            if not self._connections:
                self._idle.set()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request, and say whether the connection goes on."""
        method, request = await _request(reader)
        self.requests.append(request)
        self.asked.set()
        reply = self._reply(method, request)
        try:
            await _send(reply, reader, writer)
        except ConnectionError:
            self.hung_up.set()
            raise
        return reply.ends == "whole"

    def _reply(self, method: str, request: Request) -> Reply:
        refused = refusal(method, request.path, request.headers, request.body)
        if refused is not None:
            self.refusals.append(refused[2])
            return fails(*refused)
        if not self.replies:
            self.refusals.append("more was asked than there are replies")
            return fails(400, "invalid_request_error", "there is no reply left")
        last_stays = not self._strict and len(self.replies) == 1
        reply = self.replies[0] if last_stays else self.replies.pop(0)
        return reply if isinstance(reply, Reply) else reply(request)


async def _request(reader: asyncio.StreamReader) -> tuple[str, Request]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body: Any = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))) or b"null")
    method, path, _ = head[0].split(" ")
    return method, Request(path.partition("?")[0], headers, body)


async def _send(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a reply.

    Raises:
        ConnectionError: The client has gone.
    """
    if reply.ends == "before":
        return
    if reply.pieces is not None:
        await _send_pieces(reply, reply.pieces, reader, writer)
    elif reply.ends != "never":
        body = reply.body if reply.ends == "whole" else reply.body[: len(reply.body) // 2]
        writer.write(_head(reply, {"content-length": str(len(reply.body))}) + body)
        await writer.drain()
    if reply.ends == "never":
        await _until_gone(reader)
    if reply.ends == "inside":
        writer.close()
        await writer.wait_closed()


async def _send_pieces(
    reply: Reply,
    pieces: Sequence[bytes | asyncio.Event],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Send pieces as chunks (RFC 9112, section 7.1): a client sees then whether the last one is missing."""
    writer.write(_head(reply, {"transfer-encoding": "chunked"}))
    for piece in pieces:
        if isinstance(piece, asyncio.Event):
            await _until_set(piece, reader)
        elif piece:
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
            await asyncio.sleep(0)  # so that a client in the same loop may read it alone
    if reply.ends == "whole":
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _head(reply: Reply, framing: dict[str, str]) -> bytes:
    headers = {"content-type": "application/json"} | framing | reply.headers
    lines = [f"HTTP/1.1 {reply.status} status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _until_set(event: asyncio.Event, reader: asyncio.StreamReader) -> None:
    async with asyncio.TaskGroup() as group:
        ends = {group.create_task(event.wait()), group.create_task(_end(reader))}
        _, others = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
    if not event.is_set():
        raise _gone()


async def _until_gone(reader: asyncio.StreamReader) -> None:
    await _end(reader)
    raise _gone()


async def _end(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


def _gone() -> ConnectionError:
    return ConnectionResetError("the client has gone")
