"""The rule that joins calls of tools and their results in a conversation.

Every call is answered by exactly one result, in the message right after it, before anything else in that message
(https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use). A conversation that breaks this is
refused, and so is every later request that holds it.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from aeolus_sandbox.errors import ModelError
from aeolus_sandbox.model.chat import ChatMessage, ContentBlock, ToolResultBlock, ToolUseBlock


def check_pairing(messages: Sequence[ChatMessage]) -> None:
    """Check that a conversation begins with the user, and that its calls and results belong together.

    Messages of one role that follow each other count as one, as they do for the Messages API.

    Raises:
        ModelError: They do not; whoever built the conversation has made a mistake.
    """
    fault = next(_faults(messages), None)
    if fault is not None:
        msg = f"the conversation cannot be sent: {fault}; whoever put it together has made a mistake"
        raise ModelError(msg)


def _faults(messages: Sequence[ChatMessage]) -> Iterator[str]:
    if not messages or messages[0].role != "user":
        yield "it must begin with a message of the user"
    waiting: list[str] = []
    seen: set[str] = set()
    for role, turn in groupby(messages, key=lambda message: message.role):
        blocks = [block for message in turn for block in message.content]
        if role == "user":
            yield from _faults_of_results(blocks, waiting)
            waiting = []
        else:
            waiting = [block.id for block in blocks if isinstance(block, ToolUseBlock)]
            yield from _faults_of_calls(blocks, waiting, seen)
            seen.update(waiting)
    yield from (f"the call {call!r} has no result" for call in waiting)


def _faults_of_results(blocks: Sequence[ContentBlock], waiting: Sequence[str]) -> Iterator[str]:
    results = [block.tool_use_id for block in blocks if isinstance(block, ToolResultBlock)]
    if not all(isinstance(block, ToolResultBlock) for block in blocks[: len(results)]):
        yield "a message has something else before the results of calls"
    if any(isinstance(block, ToolUseBlock) for block in blocks):
        yield "a message of the user has a call of a tool"
    for call in waiting:
        if results.count(call) != 1:
            yield f"the call {call!r} has {results.count(call)} results"
    yield from (f"the result {result!r} belongs to no call" for result in results if result not in waiting)


def _faults_of_calls(blocks: Sequence[ContentBlock], calls: Sequence[str], seen: set[str]) -> Iterator[str]:
    if any(isinstance(block, ToolResultBlock) for block in blocks):
        yield "a message of the model has a result of a call"
    if len(set(calls)) != len(calls) or not seen.isdisjoint(calls):
        yield "two calls have the same id"
