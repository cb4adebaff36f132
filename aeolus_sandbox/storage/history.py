"""Conversations of agents, kept: a history file.

One file for any number of agents and processes. What counts as used last is the order of the writes: clocks may step,
this does not.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from aeolus_sandbox.errors import ConfigurationError, ConversationConflict, ConversationNotFound, StorageError
from aeolus_sandbox.events import AggregatedUsage
from aeolus_sandbox.identifiers import new_identifier
from aeolus_sandbox.model.chat import ChatMessage
from aeolus_sandbox.storage.columns import moment_from_column, moment_to_column, utc_now
from aeolus_sandbox.storage.database import Database, Row, Transaction
from aeolus_sandbox.storage.event_json import to_json
from aeolus_sandbox.storage.location import default_state_path
from aeolus_sandbox.storage.schema import HISTORY_FILE, HISTORY_MIGRATIONS

MAX_CONVERSATIONS: Final = 1000

_INSERT: Final = """
INSERT INTO conversations (id, agent, model, created_at, updated_at, used, usage)
VALUES (:id, :agent, :model, :now, :now, (SELECT coalesce(max(used), 0) + 1 FROM conversations), :usage)
"""
_FORGET_OLDEST: Final = """
DELETE FROM conversations WHERE number IN
(SELECT number FROM conversations ORDER BY used DESC LIMIT -1 OFFSET :kept)
"""
_SELECT: Final = """
SELECT *, (SELECT count(*) FROM messages WHERE conversation = number) AS message_count FROM conversations
"""
_ONE: Final = f"{_SELECT} WHERE id = :id"
_LATEST: Final = f"{_SELECT} ORDER BY used DESC LIMIT :limit"
_MESSAGES: Final = "SELECT message FROM messages WHERE conversation = :number ORDER BY position"
_PUT_MESSAGE: Final = """
INSERT INTO messages (conversation, position, message) VALUES (:number, :position, :message)
"""
_NOTE_USE: Final = """
UPDATE conversations SET updated_at = :now, usage = :usage,
used = (SELECT coalesce(max(used), 0) + 1 FROM conversations) WHERE number = :number
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSummary:
    """What is known of a conversation, without its messages."""

    id: str
    agent: str
    """Name of the agent that began it."""
    model: str
    message_count: int
    usage: AggregatedUsage
    """What all its runs have used together."""
    created_at: datetime
    """By the clock of the machine (UTC)."""
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation, as far as it has come."""

    id: str
    agent: str
    """Name of the agent that began it."""
    model: str
    messages: tuple[ChatMessage, ...]
    usage: AggregatedUsage
    """What all its runs have used together."""
    created_at: datetime
    """By the clock of the machine (UTC)."""
    updated_at: datetime


_Summaries = list[ConversationSummary]


class History:
    """The conversations in a history file. All methods raise `StorageError` when the file cannot be used.

    Several processes may use one file, and one conversation, at once: messages are appended whole or not at all, and
    only where those before them are the ones that the writer knows.

    The file is for its user alone (mode 0600). Of what tools printed, it holds what the agent's filters let through;
    the prompts and the model's own words are stored as they are, with every secret in them.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        max_conversations: int = MAX_CONVERSATIONS,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Name the file; the first use opens it, or makes it where there is none.

        Args:
            path: The file; None: `history.db` beside the state file.
            max_conversations: How many are kept: a new one takes the place of the one that was not written to for
                longest.
            now: The clock of the machine.

        Raises:
            ConfigurationError: `max_conversations` is less than one.
        """
        if max_conversations < 1:
            msg = f"max_conversations={max_conversations} is too small: give at least 1"
            raise ConfigurationError(msg)
        path = default_state_path().with_name("history.db") if path is None else Path(path)
        self._database = Database(path, kind=HISTORY_FILE, migrations=HISTORY_MIGRATIONS)
        self._max_conversations = max_conversations
        self._now = now

    async def create(self, agent: str, model: str) -> str:
        """Begin a conversation without messages, and return its id.

        Args:
            agent: Name of the agent.
            model: Name of the model.

        Raises:
            StorageError: It is not kept.
        """
        conversation_id = new_identifier()

        def work(transaction: Transaction) -> None:
            transaction.change(
                _INSERT,
                id=conversation_id,
                agent=_unicode(agent),
                model=_unicode(model),
                now=moment_to_column(self._now()),
                usage=AggregatedUsage().model_dump_json(),
            )
            transaction.change(_FORGET_OLDEST, kept=self._max_conversations)

        await self._database.write(work)
        return conversation_id

    async def load(self, conversation_id: str) -> Conversation:
        """Return a conversation as it is now.

        Raises:
            ConversationNotFound: There is none of this id.
            StorageError: The file cannot be read, or is damaged.
        """

        def work(transaction: Transaction) -> tuple[Row, list[Row]]:
            row = _row_of(transaction, conversation_id)
            return row, transaction.rows(_MESSAGES, number=row["number"])

        row, messages = await self._database.read(work)
        return _conversation(row, messages)

    def transcript(self, conversation_id: str, *, at: int) -> "StoredTranscript":
        """Return where the messages after the first `at` ones are appended."""
        return StoredTranscript(self._database, conversation_id, at=at, now=self._now)

    async def list(self, limit: int = 100) -> _Summaries:
        """Return the conversations that were written to last, latest first."""
        rows = await self._database.read(lambda transaction: transaction.rows(_LATEST, limit=limit))
        return [ConversationSummary(**_read(row), message_count=row["message_count"]) for row in rows]

    async def delete(self, conversation_id: str) -> None:
        """Remove a conversation for good; whoever still goes on with it gets an error.

        Raises:
            ConversationNotFound: There is none of this id.
            StorageError: It is still there.
        """

        def work(transaction: Transaction) -> None:
            number = _row_of(transaction, conversation_id)["number"]
            transaction.change("DELETE FROM conversations WHERE number = :number", number=number)

        await self._database.write(work)

    async def aclose(self) -> None:
        """Close the file, after what is under way."""
        await self._database.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class StoredTranscript:
    """One writer's end of a conversation: an `agent.settings.Transcript`."""

    def __init__(
        self, database: Database, conversation_id: str, *, at: int, now: Callable[[], datetime]
    ) -> None:
        """Begin after the first `at` messages; see `History.transcript`."""
        self._database = database
        self._id = conversation_id
        self._position = at
        self._now = now

    async def append(self, messages: Sequence[ChatMessage], usage: AggregatedUsage | None) -> None:
        """Write down the next messages, all or none, and add what they used.

        Raises:
            ConversationConflict: Others were appended since; nothing is written.
            ConversationNotFound: The conversation was removed.
            StorageFull: There is no room; what was written before is not touched.
            StorageError: They are not written down.
        """
        texts = [to_json(message.model_dump()) for message in messages]
        await self._database.write(lambda transaction: self._append(transaction, texts, usage))
        self._position += len(texts)

    def _append(self, transaction: Transaction, texts: Sequence[str], usage: AggregatedUsage | None) -> None:
        row = _row_of(transaction, self._id)
        if row["message_count"] != self._position:
            msg = (
                f"the conversation {self._id!r} has {row['message_count']} messages and not {self._position}: somebody "
                "else has gone on with it; load it again"
            )
            raise ConversationConflict(msg)
        number = row["number"]
        for position, text in enumerate(texts, start=self._position):
            transaction.change(_PUT_MESSAGE, number=number, position=position, message=text)
        total = AggregatedUsage.model_validate_json(row["usage"]).plus(usage or AggregatedUsage())
        now = moment_to_column(self._now())
        transaction.change(_NOTE_USE, number=number, now=now, usage=total.model_dump_json())


def _row_of(transaction: Transaction, conversation_id: str) -> Row:
    row = transaction.row(_ONE, id=_unicode(conversation_id))
    if row is None:
        msg = f"there is no conversation {conversation_id!r}: it never was, or was removed"
        raise ConversationNotFound(msg)
    return row


def _conversation(row: Row, messages: Sequence[Row]) -> Conversation:
    try:
        read = tuple(ChatMessage.model_validate(json.loads(each["message"])) for each in messages)
    except ValueError as error:
        msg = f"a message of the conversation {row['id']!r} cannot be read: the history file is damaged"
        raise StorageError(msg) from error
    return Conversation(**_read(row), messages=read)


def _read(row: Row) -> Row:
    return {
        "id": row["id"],
        "agent": row["agent"],
        "model": row["model"],
        "usage": AggregatedUsage.model_validate_json(row["usage"]),
        "created_at": moment_from_column(row["created_at"]),
        "updated_at": moment_from_column(row["updated_at"]),
    }


def _unicode(text: str) -> str:
    """Return a text that SQLite can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
