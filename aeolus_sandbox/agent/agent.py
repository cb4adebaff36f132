"""`Agent`: a language model with tools, whose work is streamed to consumers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self

from pydantic import SecretStr

from aeolus_sandbox.agent.builder import StreamBuilder
from aeolus_sandbox.agent.events import EventStream
from aeolus_sandbox.agent.run import AgentRun
from aeolus_sandbox.agent.session import AgentSession
from aeolus_sandbox.agent.settings import AgentSettings, Transcript, Unrecorded
from aeolus_sandbox.agent.tools import AgentTool, agent_tools
from aeolus_sandbox.agent.transcript import repaired
from aeolus_sandbox.capabilities import SANDBOXED, Grants
from aeolus_sandbox.consumers.console import ConsoleConsumer
from aeolus_sandbox.consumers.multi import MultiConsumer
from aeolus_sandbox.errors import AgentError, ConfigurationError, ModelError
from aeolus_sandbox.events import StreamConsumer
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.model.chat import ChatMessage, ChatModel
from aeolus_sandbox.storage.history import History
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.streaming.filters.redaction import Redact

REDACTED: Final = (Redact(),)
"""What is taken out by default: whatever looks like a well-known secret."""


class Agent:
    """A language model that answers prompts with the help of tools.

    It keeps nothing between runs: a conversation is the caller's list of messages, or a `History`'s. As an async
    context manager it keeps its connections to the model's service; else they end with the run.
    """

    def __init__(
        self,
        *,
        model: str | ChatModel,
        name: str = "agent",
        system_prompt: str = "",
        tools: Sequence[Any] = (),
        grants: Grants | None = None,
        limits: Limits | None = None,
        temperature: float | None = None,
        max_tokens: int = 8192,
        thinking_tokens: int | None = None,
        max_turns: int = 50,
        max_parallel_tools: int = 4,
        max_continuations: int = 8,
        attempts: int = 4,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        manager: SessionManager | None = None,
        filters: Sequence[Filter] = REDACTED,
        tool_output_characters: int = 30_000,
        history: History | None = None,
    ) -> None:
        """Configure an agent; nothing is connected or started before a run.

        Args:
            model: The model's name, as `provider/name`, or a model of your own.
            name: The agent's name, for events and traces.
            system_prompt: What the model is told before everything else.
            tools: Streaming tools, async functions, and `AgentTool`s.
            grants: What the tools may do: of the agent's own manager, by default what touches nothing of the host; of
                a `manager` that is given, what that one may, narrowed to this. The model cannot ask for more.
            limits: What each call of a tool may use.
            temperature: How varied the answers are; None: the model's own default.
            max_tokens: The longest answer, in tokens.
            thinking_tokens: How much of that the model may think; None: no extended thinking.
            max_turns: How many answers of the model a run may take.
            max_parallel_tools: How many tools run at once.
            max_continuations: How many times in a row an answer that was cut off is asked to go on.
            attempts: How many times one answer is asked for where the model is not available.
            base_url: Where the model's service is; None: `ANTHROPIC_BASE_URL`, else the public one.
            api_key: The key; None: `ANTHROPIC_API_KEY`.
            manager: Opens the tools' sessions and stays the caller's to close; None: one for each run.
            filters: What is taken out of all text before a consumer, or the model, gets it.
            tool_output_characters: How much of a tool's output the model gets: head and tail, with a marker between.
            history: Where conversations are kept; None: `continue_session` cannot be used.

        Raises:
            ConfigurationError: The model's name or key, a tool or a number is wrong.
        """
        self._models = AnthropicModels(base_url=base_url, api_key=api_key) if isinstance(model, str) else None
        self.settings = AgentSettings(
            name=name,
            model=self._models.chat_model(model) if self._models and isinstance(model, str) else _own(model),
            system_prompt=system_prompt,
            grants=grants,
            limits=limits,
            temperature=temperature,
            max_tokens=max_tokens,
            thinking_tokens=thinking_tokens,
            max_turns=max_turns,
            max_parallel_tools=max_parallel_tools,
            max_continuations=max_continuations,
            attempts=attempts,
            filters=tuple(filters),
            tool_output_characters=tool_output_characters,
        )
        self._tools: dict[str, AgentTool] = agent_tools(tools, max_characters=tool_output_characters)
        self._manager = manager
        self._users = 0
        self.history = history

    @classmethod
    def quick(cls, model: str | ChatModel, system_prompt: str = "", tools: Sequence[Any] = ()) -> Self:
        """Return an agent with the usual settings.

        Raises:
            ConfigurationError: The model's name or key, or a tool, is wrong.
        """
        return cls(model=model, system_prompt=system_prompt, tools=tools)

    def initial_messages(self, prompt: str) -> list[ChatMessage]:
        """Return the messages of a conversation that begins with this prompt.

        Raises:
            ConfigurationError: The prompt is empty.
        """
        return [_prompt(prompt)]

    def stream(self, prompt: str) -> StreamBuilder:
        """Return a run of a new conversation, to give handlers to, to run or to iterate over."""
        return StreamBuilder(lambda consumer: self.run_streaming(prompt, consumer))

    def stream_messages(self, messages: Sequence[ChatMessage]) -> StreamBuilder:
        """Return a run that goes on from messages whose last one is the user's; see `stream`."""
        return StreamBuilder(lambda consumer: self.run_streaming_with_messages(messages, consumer))

    async def run(self, prompt: str) -> AgentSession:
        """Run a new conversation and show it on the console; see `run_streaming`."""
        return await self.run_streaming(prompt, ConsoleConsumer())

    async def run_with_consumers(self, prompt: str, consumers: Sequence[StreamConsumer]) -> AgentSession:
        """Run a new conversation with several consumers, each of which gets each event in turn; see `run_streaming`."""
        multi = MultiConsumer()
        for consumer in consumers:
            multi.add(consumer)
        return await self.run_streaming(prompt, multi)

    async def run_streaming(self, prompt: str, consumer: StreamConsumer) -> AgentSession:
        """Run a new conversation; it is kept where the agent has a history.

        Raises:
            TurnLimitReached: The model still called tools when its turns were used up; `error.session` has all.
            ModelError: The model refused, or could not be reached; `error.session` has all.
            StorageError: The conversation cannot be written down.
            Exception: Whatever the consumer raised.
        """
        messages = self.initial_messages(prompt)
        if self.history is None:
            return await self._run(new_identifier(), [], messages, consumer, Unrecorded())
        session_id = await self.history.create(agent=self.settings.name, model=self.settings.model.name)
        return await self._run(session_id, [], messages, consumer, self.history.transcript(session_id, at=0))

    async def run_streaming_with_messages(
        self, messages: Sequence[ChatMessage], consumer: StreamConsumer
    ) -> AgentSession:
        """Run on from messages that the caller keeps, the last of which is the user's; no history has them.

        Calls in them that have no result get one that says so; nothing is run again. See `run_streaming`.

        Raises:
            ConfigurationError: There is no message, or the last one is the model's.
        """
        whole = repaired(messages)
        if not whole or whole[-1].role != "user":
            msg = "the last message must be the user's: append ChatMessage.user(...)"
            raise ConfigurationError(msg)
        return await self._run(new_identifier(), whole[:-1], whole[-1:], consumer, Unrecorded())

    async def continue_session(
        self, session_id: str, prompt: str, consumer: StreamConsumer | None = None
    ) -> AgentSession:
        """Go on with a conversation of the history; None: it is shown on the console. See `run_streaming`.

        Raises:
            ConfigurationError: The agent has no history.
            ConversationNotFound: The history has none of this id.
            ConversationConflict: Somebody else has gone on with it meanwhile.
        """
        if self.history is None:
            msg = "the agent has no history: build it with history=History(...)"
            raise ConfigurationError(msg)
        conversation = await self.history.load(session_id)
        # What a crash has left unanswered is answered together with the prompt.
        messages = repaired([*conversation.messages, _prompt(prompt)])
        transcript = self.history.transcript(session_id, at=len(conversation.messages))
        return await self._run(
            session_id, messages[:-1], messages[-1:], consumer or ConsoleConsumer(), transcript
        )

    async def aclose(self) -> None:
        """Close the connections to the model's service; without effect where the model is the caller's."""
        if self._models is not None:
            await self._models.aclose()

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._users -= 1
        if not self._users:
            await self.aclose()

    async def _run(
        self,
        session_id: str,
        before: Sequence[ChatMessage],
        first: Sequence[ChatMessage],
        consumer: StreamConsumer,
        transcript: Transcript,
    ) -> AgentSession:
        session = AgentSession(session_id, list(before))
        events = EventStream(consumer, session_id=session_id, filters=self.settings.filters)
        async with self, self._used_manager() as manager:
            run = AgentRun(self.settings, self._tools, manager, events, session, transcript)
            try:
                await run.run(first)
            except (AgentError, ModelError) as error:
                error.session = session
                raise
            finally:
                session.messages = repaired(session.messages)
        return session

    @asynccontextmanager
    async def _used_manager(self) -> AsyncIterator[SessionManager]:
        if self._manager is not None:
            yield self._manager
            return
        grants = SANDBOXED if self.settings.grants is None else self.settings.grants
        async with SessionManager(grants=grants, limits=self.settings.limits) as manager:
            yield manager


def _own(model: str | ChatModel) -> ChatModel:
    assert not isinstance(model, str)
    return model


def _prompt(text: str) -> ChatMessage:
    if not text.strip():
        msg = "the prompt is empty: ask for something"
        raise ConfigurationError(msg)
    return ChatMessage.user(text)
