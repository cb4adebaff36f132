"""A local server that speaks the Messages API, with everything that goes wrong with one."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Literal, Self


@dataclass(frozen=True)
class Request:
    """What was asked."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What is answered, or how the connection ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    ends: Literal["whole", "before", "inside", "never"] = "whole"


def says(*texts: str, **fields: Any) -> Reply:
    """Return an answer of the model."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [{"type": "text", "text": text} for text in texts],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return Reply(body=json.dumps(message | fields).encode())


def fails(status: int, kind: str = "api_error", message: str = "no", **headers: str) -> Reply:
    """Return an error of the service."""
    body = {"type": "error", "error": {"type": kind, "message": message}}
    return Reply(
        status, json.dumps(body).encode(), {name.replace("_", "-"): headers[name] for name in headers}
    )


NEVER = Reply(ends="never")
CUT_BEFORE = Reply(ends="before")
CUT_INSIDE = Reply(body=says("half of").body, ends="inside")


class MessagesServer:
    """Answers on loopback with the given replies, in order; the last one goes on."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies) or [says("a summary")]
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._connections):
            writer.transport.abort()
        async with asyncio.timeout(10):
            await self._idle.wait()

    @property
    def url(self) -> str:
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
        self.requests.append(await _request(reader))
        self.asked.set()
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if reply.ends == "never":
            await reader.read()  # until the client gives up
        if reply.ends in {"never", "before"}:
            return False
        headers = {"content-type": "application/json", "content-length": str(len(reply.body))} | reply.headers
        lines = [f"HTTP/1.1 {reply.status} status", *(f"{name}: {value}" for name, value in headers.items())]
        body = reply.body if reply.ends == "whole" else reply.body[: len(reply.body) // 2]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        if reply.ends == "inside":
            writer.close()
            await writer.wait_closed()
        return reply.ends == "whole"


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(head[0].split(" ")[1], headers, json.loads(body))
