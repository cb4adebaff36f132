"""Transcripts that can be sent: every call of a tool is answered, in the message after it and before all else.

https://docs.anthropic.com/en/docs/agents-and-tools/tool-use: a request with a call that is not answered is refused.
"""

from collections.abc import Sequence

from aeolus_sandbox.agent.results import error_block
from aeolus_sandbox.model.chat import ChatMessage, ContentBlock, ToolResultBlock

INTERRUPTED = "interrupted: it is not known whether the tool ran, or what it did"


def repaired(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a transcript in which every call has one result, where a crash or a cancelled run has left it without.

    Nothing is run again. A call that was not answered gets an error that says so; of several results for one call the
    first counts; results of no call are left out.
    """
    found: list[ChatMessage] = []
    waiting = list(messages)
    while waiting:
        message = waiting.pop(0)
        if message.role == "user":
            message = _without_results(message)
            if message.content:
                found.append(message)
            continue
        found.append(message)
        if not message.tool_uses:
            continue
        following = waiting.pop(0) if waiting and waiting[0].role == "user" else None
        found.append(_answering(message, following))
    return found


def _answering(message: ChatMessage, following: ChatMessage | None) -> ChatMessage:
    """Return the user's message after one with calls: the results first, in the order of the calls."""
    given: dict[str, ToolResultBlock] = {}
    rest: list[ContentBlock] = []
    for block in () if following is None else following.content:
        if isinstance(block, ToolResultBlock):
            given.setdefault(block.tool_use_id, block)
        else:
            rest.append(block)
    results = [given.get(use.id) or error_block(use.id, INTERRUPTED) for use in message.tool_uses]
    return ChatMessage(role="user", content=(*results, *rest))


def _without_results(message: ChatMessage) -> ChatMessage:
    content = tuple(block for block in message.content if not isinstance(block, ToolResultBlock))
    return (
        message if len(content) == len(message.content) else message.model_copy(update={"content": content})
    )
