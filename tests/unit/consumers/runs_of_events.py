"""Runs of events, as tests of consumers need them."""

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from aeolus_sandbox.consumers import deliver
from aeolus_sandbox.events import (
    AggregatedUsage,
    Content,
    Done,
    Error,
    Event,
    ModelRetried,
    Reasoning,
    SessionStarted,
    StreamConsumer,
    StreamEvent,
    ToolCallCompleted,
    ToolCallFailed,
    ToolCallStarted,
    ToolOutput,
    TurnCompleted,
    UsageUpdate,
)

SESSION = "session-1"

any_text = st.text(st.characters() | st.sampled_from("\0\ud800\udfff\x1b\x7f\x9b\u202e\r\n"), max_size=60)
any_json = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | any_text, st.lists, max_leaves=5)
_call = {
    "tool_call_id": st.sampled_from(["a", "b", "c"]),
    "tool_name": st.sampled_from(["python", "terminal"]),
}
_kinds: Sequence[st.SearchStrategy[Any]] = (
    st.tuples(st.just(Content), st.fixed_dictionaries({"content": any_text})),
    st.tuples(st.just(Content), st.fixed_dictionaries({"content": any_text})),
    st.tuples(st.just(Reasoning), st.fixed_dictionaries({"content": any_text})),
    st.tuples(st.just(ToolCallStarted), st.fixed_dictionaries(_call | {"arguments": any_text})),
    st.tuples(
        st.just(ToolOutput),
        st.fixed_dictionaries(_call | {"stream": st.just("stdout"), "text": any_text, "chunk": any_json}),
    ),
    st.tuples(
        st.just(ToolCallCompleted),
        st.fixed_dictionaries(
            _call | {"result": any_json, "success": st.booleans(), "duration_ms": st.floats(0, 1e6)}
        ),
    ),
    st.tuples(st.just(ToolCallFailed), st.fixed_dictionaries(_call | {"error": any_text})),
    st.tuples(
        st.just(ModelRetried),
        st.fixed_dictionaries({"attempt": st.integers(1, 4), "error": any_text, "wait_s": st.floats(0, 9)}),
    ),
    st.tuples(
        st.just(UsageUpdate),
        st.fixed_dictionaries({"snapshot": st.builds(AggregatedUsage, requests=st.integers(0, 9))}),
    ),
    st.tuples(st.just(TurnCompleted), st.fixed_dictionaries({"turn": st.just(1), "stop_reason": any_text})),
)
_last: st.SearchStrategy[Any] = st.tuples(st.just(Done), st.fixed_dictionaries({})) | st.tuples(
    st.just(Error), st.fixed_dictionaries({"message": any_text})
)


class Run:
    """Makes the events of one run, each with its place."""

    def __init__(self, session_id: str = SESSION) -> None:
        self._session_id = session_id
        self._next = 0

    def event(self, kind: type[Event], **fields: Any) -> Any:
        made = kind(sequence=self._next, session_id=self._session_id, **fields)
        self._next += 1
        return made

    def whole(self, *middle: tuple[type[Event], dict[str, Any]]) -> list[StreamEvent]:
        """Return a run of these events, with a beginning and an end."""
        kinds: list[tuple[type[Event], dict[str, Any]]] = [
            (SessionStarted, {"agent": "tester", "model": "test/model"}),
            *middle,
        ]
        events = [self.event(kind, **fields) for kind, fields in kinds]
        return events if isinstance(events[-1], Done | Error) else [*events, self.event(Done)]


@st.composite
def any_run(draw: st.DrawFn, max_size: int = 30) -> list[StreamEvent]:
    middle = draw(st.lists(st.one_of(_kinds), max_size=max_size))
    return Run().whole(*middle, draw(_last))


async def deliver_all(consumer: StreamConsumer, events: Iterable[StreamEvent]) -> None:
    for event in events:
        await deliver(consumer, event)


def texts(events: Iterable[StreamEvent]) -> list[tuple[str, str]]:
    """Return the texts of the model, joined where they follow each other."""
    joined: list[tuple[str, str]] = []
    previous = ""
    for event in events:
        if isinstance(event, Content | Reasoning):
            if previous == event.type:
                joined[-1] = (event.type, joined[-1][1] + event.content)
            else:
                joined.append((event.type, event.content))
        previous = event.type
    return joined


def others(events: Iterable[StreamEvent]) -> list[StreamEvent]:
    """Return the events that are no text of the model."""
    return [event for event in events if not isinstance(event, Content | Reasoning)]
