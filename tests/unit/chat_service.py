"""Conversations with the real client against a local service, for several files of tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from pydantic import SecretStr

from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.model.chat import (
    Answer,
    ChatMessage,
    ChatModel,
    ChatRequest,
    TextDelta,
    ThinkingDelta,
    ToolSpec,
)
from aeolus_sandbox.testing.messages_server import (
    MessagesServer,
)

KEY = "sk-ant-very-secret-0123456789"
NAME = "anthropic/claude-haiku-4-5"
ASKED = ChatRequest(messages=[ChatMessage.user("What is here?")])
TOOL = ToolSpec(name="terminal", description="Runs a command.", input_schema={"type": "object"})
PIXEL = "iVBORw0KGgo="

Pieces = list[TextDelta | ThinkingDelta | Answer]


Service = tuple[MessagesServer, AnthropicModels]
"""A server and a client that serve all that a property test draws."""


@asynccontextmanager
async def open_models(server: MessagesServer) -> AsyncIterator[AnthropicModels]:
    models = AnthropicModels(base_url=server.url, api_key=SecretStr(KEY))
    try:
        async with asyncio.timeout(60):
            yield models
    finally:
        await models.aclose()


async def read(model: ChatModel, request: ChatRequest = ASKED) -> Pieces:
    return [piece async for piece in model.stream(request)]


@contextmanager
def serving(loop: asyncio.Runner) -> Iterator[Service]:
    """Give a server and a client that live in a loop of their own, for what is drawn many times."""

    async def start() -> Service:
        server = await MessagesServer().__aenter__()
        return server, AnthropicModels(base_url=server.url, api_key=SecretStr(KEY))

    server, models = loop.run(start())
    try:
        yield server, models
    finally:
        loop.run(models.aclose())
        loop.run(server.__aexit__(None))
