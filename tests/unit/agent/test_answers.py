"""One answer of the model: retried where that helps, shown once, and without secrets however it is cut."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.agent.agent import REDACTED
from aeolus_sandbox.agent.answers import LONGEST_WAIT_S, Asking, FailedAttempt, Kind
from aeolus_sandbox.errors import ModelError, ModelUnavailable
from aeolus_sandbox.model.chat import Answer, ChatMessage, ChatRequest
from aeolus_sandbox.streaming.filters import Filter
from aeolus_sandbox.testing.scripted_model import ScriptedModel, Step, Thought, Turn

ASKED = ChatRequest(messages=[ChatMessage.user("Begin.")])
SECRET = "sk-ant-api03-" + "Qz7" * 15


class Listener:
    """What whoever listens to an answer hears."""

    def __init__(self) -> None:
        self.texts: list[tuple[Kind, str]] = []
        self.failures: list[FailedAttempt] = []
        self.slept: list[float] = []

    async def on_text(self, kind: Kind, text: str) -> None:
        assert text
        self.texts.append((kind, text))

    async def on_failure(self, failed: FailedAttempt) -> None:
        self.failures.append(failed)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def heard(self, kind: Kind = "content") -> str:
        return "".join(text for each, text in self.texts if each == kind)


async def ask(
    steps: Sequence[Step], *, attempts: int = 4, filters: Sequence[Filter] = ()
) -> tuple[Listener, Answer]:
    listener = Listener()
    async with asyncio.timeout(20), ScriptedModel(steps) as model:
        asking = Asking(
            model,
            attempts,
            filters,
            sleep=listener.sleep,
            on_text=listener.on_text,
            on_failure=listener.on_failure,
        )
        return listener, await asking.ask(ASKED)


def broken(*parts: str | Thought) -> Turn:
    return Turn(*parts, ModelUnavailable("overloaded"))


async def test_what_was_shown_is_not_shown_again() -> None:
    listener, answer = await ask([broken("Let me"), ["Let", " me", " look."]])
    assert [text for _, text in listener.texts] == ["Let me", " look."]
    assert answer.message.text == "Let me look."
    assert [each.shown_characters for each in listener.failures] == [6]


async def test_another_answer_comes_whole_on_a_line_of_its_own() -> None:
    listener, _ = await ask([broken("Let me"), ["Le", "aves are green."]])
    assert listener.heard() == "Let me\nLeaves are green."


async def test_an_answer_that_is_shorter_than_what_was_shown_comes_whole() -> None:
    listener, answer = await ask([broken("Let me look"), "Let me"])
    assert answer.message.text == "Let me"
    assert listener.heard() == "Let me look\nLet me"


async def test_thinking_and_text_are_told_apart_in_retries() -> None:
    thought = Thought("Look first.")
    listener, _ = await ask([broken(thought, "Let me"), [Thought("Look first."), "Let me look."]])
    assert listener.heard("reasoning") == "Look first."
    assert listener.heard() == "Let me look."


async def test_the_last_attempt_raises() -> None:
    with pytest.raises(ModelUnavailable, match="the second"):
        await ask([ModelUnavailable("the first"), ModelUnavailable("the second")], attempts=2)


async def test_a_refusal_is_not_tried_again() -> None:
    with pytest.raises(ModelError, match="wrong"):
        await ask([ModelError("wrong")])


async def test_the_service_says_how_long_to_wait_and_no_more_than_we_bear() -> None:
    soon, late = ModelUnavailable("limited"), ModelUnavailable("limited")
    soon.retry_after_s, late.retry_after_s = 7.0, 3600.0
    listener, _ = await ask([soon, late, "done"])
    assert listener.slept == [7.0, LONGEST_WAIT_S]
    assert [each.wait_s for each in listener.failures] == listener.slept


async def test_waits_grow() -> None:
    listener, _ = await ask([ModelUnavailable("x")] * 3 + ["done"])
    assert 0.5 <= listener.slept[0] <= 1.0 <= listener.slept[1] <= 2.0 <= listener.slept[2] <= 4.0


async def test_a_stream_without_an_answer_is_the_models_fault() -> None:
    class Mute:
        name = "mute"

        async def stream(self, request: ChatRequest):  # type: ignore[no-untyped-def]
            return
            yield

    listener = Listener()
    asking = Asking(
        Mute(), 1, (), sleep=listener.sleep, on_text=listener.on_text, on_failure=listener.on_failure
    )
    with pytest.raises(ModelError, match="without an answer"):
        await asking.ask(ASKED)


async def test_half_a_secret_of_an_attempt_that_broke_off_is_not_completed_by_the_next() -> None:
    for cut in range(1, len(SECRET)):
        whole = f"the key {SECRET} is mine"
        listener, _ = await ask(
            [broken("the key " + SECRET[:cut]), [whole[: 8 + cut], whole[8 + cut :]]], filters=REDACTED
        )
        heard = listener.heard()
        assert SECRET not in heard.replace("\n", "")
        assert SECRET[cut:] not in heard or cut > len(SECRET) - 8
        assert heard.startswith("the key ")
        assert heard.endswith(" is mine")


async def test_what_is_held_back_of_thinking_comes_before_the_text() -> None:
    listener, _ = await ask([[Thought("I use sk-ant-"), "Fine."]], filters=REDACTED)
    assert [kind for kind, _ in listener.texts][-1] == "content"
    assert listener.heard("reasoning") == "I use sk-ant-"


pieces = st.lists(st.sampled_from(["a", "b", "ab", "ba", " "]), max_size=6)


@given(failed=st.lists(pieces, max_size=3), last=pieces)
@settings(deadline=None)
def test_what_is_heard_ends_with_the_answer_however_often_it_broke_off(
    failed: list[list[str]], last: list[str]
) -> None:
    listener, _ = asyncio.run(ask([*(broken(*each) for each in failed), [*last, "!"]]))
    heard, answer = listener.heard(), "".join(last) + "!"
    assert heard.endswith(answer)
    assert heard[: -len(answer)] in {"", heard[: -len(answer)].rstrip("\n") + "\n"}


@given(text=st.text("ab", max_size=20), cut=st.integers(0, 20), size=st.integers(1, 5))
@settings(deadline=None)
def test_an_answer_that_begins_alike_is_shown_once(text: str, cut: int, size: int) -> None:
    again = [text[i : i + size] for i in range(0, len(text), size)]
    listener, _ = asyncio.run(ask([broken(text[:cut]), [*again, "."]]))
    assert listener.heard() == text + "."
