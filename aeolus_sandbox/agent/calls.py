"""The calls of tools in one answer of the model: side by side, each with its events and its one result."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final

from aeolus_sandbox.agent.context import AgentContext, CallOutput
from aeolus_sandbox.agent.events import ConsumerFailedError, EventStream
from aeolus_sandbox.agent.results import (
    ToolOutcome,
    as_json,
    code_of,
    error_block,
    failure_in_words,
    result_block,
)
from aeolus_sandbox.agent.settings import AgentSettings
from aeolus_sandbox.agent.tools import AgentTool
from aeolus_sandbox.events import ToolCallCompleted, ToolCallFailed, ToolCallStarted, ToolOutput
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.model.chat import Answer, ToolResultBlock, ToolUseBlock
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.filters.base import filtered

CUT_OFF: Final = "max_tokens"
"""Why an answer stops that is not whole."""
CANCELLED: Final = "the run was cancelled"
_MALFORMED: Final = "the arguments are not a JSON object: write them again"
_UNFINISHED: Final = (
    "your answer was cut off in the middle of this call, which was not run: make it again, shorter"
)


class ToolCalls:
    """Calls the tools of one run."""

    def __init__(
        self,
        settings: AgentSettings,
        tools: Mapping[str, AgentTool],
        manager: SessionManager,
        events: EventStream,
        session_id: str,
    ) -> None:
        self._settings = settings
        self._tools = tools
        self._manager = manager
        self._events = events
        self._session_id = session_id
        self._slots = asyncio.Semaphore(settings.max_parallel_tools)

    async def run(self, answer: Answer, results: dict[str, ToolResultBlock]) -> None:
        """Call the tools side by side and put their results, as each one ends, under the ids of the calls.

        Raises:
            ConsumerFailedError: The consumer raised; all tools have ended.
        """
        calls = answer.message.tool_uses
        # What was cut off is the last block: a call that looks whole may lack its arguments.
        is_cut_off = answer.stop_reason == CUT_OFF
        unfinished = answer.message.content[-1] if calls and is_cut_off else None

        async def call(use: ToolUseBlock) -> None:
            async with self._slots:
                results[use.id] = await self._call(use, is_whole=use is not unfinished)

        try:
            async with asyncio.TaskGroup() as group:
                for use in calls:
                    group.create_task(call(use))
        except BaseExceptionGroup as errors:
            raise _first_of(errors) from None

    async def _call(self, use: ToolUseBlock, *, is_whole: bool) -> ToolResultBlock:
        named: dict[str, Any] = {"tool_call_id": use.id, "tool_name": use.name}
        arguments = json.dumps(use.input, ensure_ascii=False) if use.malformed is None else use.malformed
        await self._events.emit(ToolCallStarted, **named, arguments=arguments)
        began = time.monotonic()
        try:
            outcome, block = await self._outcome(use, is_whole=is_whole)
        except ConsumerFailedError:
            raise
        except asyncio.CancelledError as error:
            if _is_cancelled():
                taken = _milliseconds_since(began)
                await self._events.emit_last(ToolCallFailed, **named, error=CANCELLED, duration_ms=taken)
                raise
            return await self._failed(named, error, began)  # the tool has cancelled itself
        except Exception as error:  # noqa: BLE001 - a tool's failure is the model's to deal with
            return await self._failed(named, error, began)
        await self._events.emit(
            ToolCallCompleted,
            **named,
            result=outcome.result,
            success=outcome.success,
            duration_ms=_milliseconds_since(began),
        )
        return block

    async def _outcome(self, use: ToolUseBlock, *, is_whole: bool) -> tuple[ToolOutcome, ToolResultBlock]:
        tool = self._tool(use, is_whole=is_whole)
        context = self._context(use)
        try:
            outcome = await tool.call(use.input, context)
        finally:
            if not _is_cancelled():
                await context.output.end()
        settings = self._settings
        return outcome, result_block(
            use.id, outcome, max_characters=settings.tool_output_characters, filters=settings.filters
        )

    async def _failed(self, named: dict[str, Any], error: BaseException, began: float) -> ToolResultBlock:
        words = filtered(failure_in_words(error), self._settings.filters)
        taken = _milliseconds_since(began)
        await self._events.emit(ToolCallFailed, **named, error=words, code=code_of(error), duration_ms=taken)
        return error_block(named["tool_call_id"], words)

    def _tool(self, use: ToolUseBlock, *, is_whole: bool) -> AgentTool:
        if not is_whole:
            raise ValueError(_UNFINISHED)
        if use.malformed is not None:
            raise ValueError(_MALFORMED)
        if use.name not in self._tools:
            known = ", ".join(map(repr, self._tools)) or "none"
            msg = f"there is no tool {use.name!r}: there are {known}"
            raise LookupError(msg)
        return self._tools[use.name]

    def _context(self, use: ToolUseBlock) -> AgentContext:
        async def show(chunk: OutputChunk) -> None:
            await self._events.emit_filtered(
                ToolOutput,
                tool_call_id=use.id,
                tool_name=use.name,
                stream=_stream_of(chunk),
                text=chunk.as_text(),
                chunk=as_json(chunk),
            )

        return AgentContext(
            session_id=self._session_id,
            tool_call_id=use.id,
            tool_name=use.name,
            manager=self._manager,
            grants=self._settings.grants,
            limits=self._settings.limits,
            filters=self._settings.filters,
            output=CallOutput(show, self._settings.filters),
        )


def _is_cancelled() -> bool:
    """Return whether this task was told to end, and not merely something that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _milliseconds_since(began: float) -> float:
    return (time.monotonic() - began) * 1000


def _stream_of(chunk: OutputChunk) -> str:
    stream = getattr(chunk, "stream", None)
    return stream if isinstance(stream, str) else "output"
