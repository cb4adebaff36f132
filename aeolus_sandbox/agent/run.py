"""One run of an agent: the model is asked, its tools are called, until it has no more to call."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from aeolus_sandbox.agent.answers import Asking, FailedAttempt, Kind
from aeolus_sandbox.agent.calls import CANCELLED, CUT_OFF, ToolCalls
from aeolus_sandbox.agent.events import ConsumerFailedError, EventStream
from aeolus_sandbox.agent.results import code_of, failure_in_words
from aeolus_sandbox.agent.session import GO_ON, AgentSession
from aeolus_sandbox.agent.settings import AgentSettings, Transcript
from aeolus_sandbox.agent.tools import AgentTool
from aeolus_sandbox.errors import AeolusError, TurnLimitReached
from aeolus_sandbox.events import (
    AggregatedUsage,
    Content,
    Done,
    Error,
    ModelRetried,
    Reasoning,
    SessionStarted,
    TurnCompleted,
    UsageUpdate,
)
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.model.chat import Answer, ChatMessage, ChatRequest, ToolResultBlock

_PAUSED: Final = "pause_turn"


class AgentRun:
    """One run, from the user's message to the model's last word."""

    def __init__(
        self,
        settings: AgentSettings,
        tools: Mapping[str, AgentTool],
        manager: SessionManager,
        events: EventStream,
        session: AgentSession,
        transcript: Transcript,
    ) -> None:
        self._settings = settings
        self._specs = tuple(tool.spec for tool in tools.values())
        self._events = events
        self._session = session
        self._transcript = transcript
        self._calls = ToolCalls(settings, tools, manager, events, session.session_id)
        self._asking = Asking(
            settings.model,
            settings.attempts,
            settings.filters,
            sleep=asyncio.sleep,
            on_text=self._show_text,
            on_failure=self._note_failed_attempt,
        )

    async def run(self, first: Sequence[ChatMessage]) -> None:
        """Run to the end; the session holds what came of it, whatever ends it.

        Raises:
            TurnLimitReached: The model still wanted to call tools.
            ModelError: The model refused, or could not be reached.
            Exception: Whatever a consumer raised.
        """
        try:
            await self._events.emit(
                SessionStarted, agent=self._settings.name, model=self._settings.model.name
            )
            await self._add(*first)
            await self._take_turns()
            await self._events.emit(Done)
        except ConsumerFailedError:
            failure = self._events.failure
        except BaseException as error:
            await self._say_why(error)
            raise
        else:
            return
        assert failure is not None
        raise failure  # here, as it is: nothing of ours becomes its cause or context

    async def _take_turns(self) -> None:
        continued = 0
        while self._session.turns < self._settings.max_turns:
            answer = await self._answer()
            called = await self._call_tools(answer)
            turn = self._session.turns
            await self._events.emit(TurnCompleted, turn=turn, stop_reason=answer.stop_reason)
            if called:
                continued = 0
                continue
            if answer.stop_reason not in {CUT_OFF, _PAUSED} or continued == self._settings.max_continuations:
                return
            continued += 1
            if answer.stop_reason == CUT_OFF:
                await self._add(GO_ON)
        msg = f"the agent has used up its {self._settings.max_turns} turns: raise max_turns, or ask for less at once"
        raise TurnLimitReached(msg)

    async def _answer(self) -> Answer:
        settings = self._settings
        answer = await self._asking.ask(
            ChatRequest(
                messages=tuple(self._session.messages),
                system=settings.system_prompt,
                tools=self._specs,
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
                thinking_tokens=settings.thinking_tokens,
            )
        )
        self._session.turns += 1
        self._session.stop_reason = answer.stop_reason
        self._session.usage = self._session.usage.plus(answer.usage)
        # The service takes no empty message back.
        await self._add(*([answer.message] if answer.message.content else []), usage=answer.usage)
        await self._events.emit(UsageUpdate, snapshot=self._session.usage)
        return answer

    async def _call_tools(self, answer: Answer) -> bool:
        """Call the tools that the answer calls, and say whether there were any."""
        results: dict[str, ToolResultBlock] = {}
        try:
            await self._calls.run(answer, results)
        except BaseException:
            with suppress(AeolusError):  # what ends the run is the error to raise
                await self._add_results(answer, results)  # of those that had ended
            raise
        await self._add_results(answer, results)
        return bool(results)

    async def _add_results(self, answer: Answer, results: Mapping[str, ToolResultBlock]) -> None:
        content = tuple(results[use.id] for use in answer.message.tool_uses if use.id in results)
        await self._add(*([ChatMessage(role="user", content=content)] if content else []))

    async def _add(self, *messages: ChatMessage, usage: AggregatedUsage | None = None) -> None:
        """Take messages into the transcript; what cannot be recorded must not be acted on."""
        self._session.messages.extend(messages)
        if messages or usage is not None:
            await self._transcript.append(messages, usage)

    async def _show_text(self, kind: Kind, text: str) -> None:
        await self._events.emit_filtered(Content if kind == "content" else Reasoning, content=text)

    # What goes wrong.

    async def _note_failed_attempt(self, failed: FailedAttempt) -> None:
        await self._events.emit(
            ModelRetried,
            attempt=failed.attempt,
            error=str(failed.error),
            code=failed.error.code,
            wait_s=failed.wait_s,
            shown_characters=failed.shown_characters,
        )

    async def _say_why(self, error: BaseException) -> None:
        """Tell the consumer how the run ended; what ended it is the error to raise, whatever comes of that."""
        if isinstance(error, asyncio.CancelledError):
            await self._events.emit_last(Error, message=CANCELLED)
            return
        with suppress(ConsumerFailedError):
            await self._events.emit(Error, message=failure_in_words(error), code=code_of(error))
