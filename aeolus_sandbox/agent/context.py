"""What a tool of an agent's gets besides its arguments: who calls, and a way to the sandboxed tools."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from aeolus_sandbox.capabilities import Grants
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.chunk_filter import ChunkFilter
from aeolus_sandbox.streaming.policies import Policy
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.tool import StreamingTool

_SESSION_FIELD = "session_id"


class CallOutput:
    """What a call of a tool shows to the run's consumers while it runs."""

    def __init__(self, show: Callable[[OutputChunk], Awaitable[None]], filters: Sequence[Filter]) -> None:
        self.show = show
        """Shows a chunk that a session has filtered already."""
        self._filter: ChunkFilter[OutputChunk] | None = ChunkFilter(filters) if filters else None

    async def emit(self, chunk: OutputChunk) -> None:
        """Show what passes the filters of a chunk of the tool's own."""
        passed = chunk if self._filter is None else self._filter.feed(chunk)
        if passed is not None:
            await self.show(passed)

    async def end(self) -> None:
        """Show what the filters still hold."""
        for chunk in () if self._filter is None else self._filter.flush():
            await self.show(chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """One call of a tool by an agent."""

    session_id: str
    """The agent's session."""
    tool_call_id: str
    tool_name: str
    manager: SessionManager
    grants: Grants | None
    """What the agent's tools may do, given by whoever built it; None: what its manager may."""
    limits: Limits | None
    filters: tuple[Filter, ...]
    """What is taken out of the text of every tool, before the model or a consumer gets it."""
    output: CallOutput

    async def emit(self, chunk: OutputChunk) -> None:
        """Show a chunk to the run's consumers as output of this call, without what the filters take out."""
        await self.output.emit(chunk)

    @asynccontextmanager
    async def stream_tool(
        self, tool: StreamingTool[Any, Any, Any], tool_input: BaseModel, *, policy: Policy | None = None
    ) -> AsyncIterator[StreamingToolSession[Any, Any]]:
        """Start a streaming tool as a step of this call; it ends, at the latest, when the block is left.

        Nothing that the model chose can widen what the tool may do: grants and limits are the agent's. Its input is
        open: send `EndOfInput` where a program may ask and nobody is there to answer.

        Args:
            tool: The tool.
            tool_input: What it is given. A `session_id` in it names something of this agent's session alone.
            policy: How its output comes; None: the tool's own way.

        Raises:
            AeolusError: See `SessionManager.open`.
        """
        policy = policy or tool.policy
        if self.filters:
            policy = policy.model_copy(update={"filters": (*policy.filters, *self.filters)})
        session = await self.manager.open(
            tool, self._own(tool_input), policy=policy, limits=self.limits, grants=self.grants
        )
        async with session:
            yield session

    def _own(self, tool_input: BaseModel) -> BaseModel:
        # Boundary: two agents of one manager, which may work for different people, must not share a kernel because
        # their models chose the same name for it.
        chosen = getattr(tool_input, _SESSION_FIELD, None)
        if not isinstance(chosen, str):
            return tool_input
        return tool_input.model_copy(update={_SESSION_FIELD: f"{self.session_id}/{chosen}"})
