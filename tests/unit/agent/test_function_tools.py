"""Plain async functions as tools: what the model sees of them, what they are given, and what it is told."""

import asyncio
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.context import AgentContext
from aeolus_sandbox.agent.results import ToolOutcome
from aeolus_sandbox.agent.tools import agent_tools
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.events import ToolCallCompleted, ToolCallFailed, ToolOutput
from aeolus_sandbox.model.chat import ToolSpec
from aeolus_sandbox.testing.scripted_model import Call, ScriptedModel
from tests.unit.agent.agent_runs import Said, Says, SaysInput, results, run, told

SECRET = "ghp_" + "a1B2" * 9


class Place(BaseModel):
    """Where."""

    city: str
    country: str = "DE"


def spec_of(tool: Any) -> ToolSpec:
    (made,) = agent_tools([tool], max_characters=1000).values()
    return made.spec


def test_the_schema_is_made_of_the_annotations_and_the_description_of_the_docstring() -> None:
    async def weather(
        place: Place,
        context: AgentContext,
        unit: Literal["C", "F"] = "C",
        days: Annotated[int, Field(ge=1, le=7, description="How many.")] = 1,
    ) -> str:
        """Tell the weather.

        Of some days.
        """
        return f"{place}{context}{unit}{days}"

    spec = spec_of(weather)
    assert spec.name == "weather"
    assert spec.description == "Tell the weather.\n\nOf some days."
    schema = spec.input_schema
    assert schema["type"] == "object"
    assert list(schema["properties"]) == ["place", "unit", "days"]
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    days = schema["properties"]["days"]
    assert (days["minimum"], days["maximum"], days["description"], days["default"]) == (1, 7, "How many.", 1)


def test_a_function_without_a_docstring_is_described_by_its_name() -> None:
    async def look_up() -> None: ...

    assert spec_of(look_up).description == "look_up"


def test_parameters_may_be_called_what_models_call_their_own() -> None:
    async def tool(json: str, copy: int, model_config: str, schema: str = "x") -> None: ...

    assert list(spec_of(tool).input_schema["properties"]) == ["json", "copy", "model_config", "schema"]


def plain(x: int) -> int:
    return x


async def unannotated(x) -> None:  # type: ignore[no-untyped-def]
    ...


async def many(*values: int) -> None: ...


async def named(**values: int) -> None: ...


async def positional(x: int, /) -> None: ...


async def unknown(x: "Nowhere") -> None:  # type: ignore[name-defined] # noqa: F821
    ...


async def unserialisable(x: asyncio.Event) -> None: ...


class Odd:
    """Something that is no tool."""


@pytest.mark.parametrize(
    "tool",
    [plain, unannotated, many, named, positional, unknown, unserialisable, Odd(), "terminal", lambda: None],
)
def test_what_cannot_be_a_tool_is_refused_when_the_agent_is_built(tool: Any) -> None:
    with pytest.raises(ConfigurationError):
        Agent(model=ScriptedModel([]), tools=[tool])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two tools are called 'says'"):
        Agent(model=ScriptedModel([]), tools=[Says(), Says()])


async def test_methods_are_tools_too() -> None:
    class Counter:
        total = 0

        async def add(self, amount: int) -> int:
            self.total += amount
            return self.total

    counter = Counter()
    _, model = await run([Call("add", {"amount": 4}), "ok"], tools=[counter.add])
    assert told(model) == ["4"]


async def test_arguments_are_checked_and_converted() -> None:
    seen: list[Any] = []

    async def visit(place: Place, json: tuple[int, ...] = ()) -> Place:
        seen.extend([place, json])
        return place

    recorder, model = await run(
        [[Call("visit", {"place": {"city": "Ulm"}, "json": [1, "2"]})], "ok"], tools=[visit]
    )
    assert seen == [Place(city="Ulm"), (1, 2)]
    assert recorder.of(ToolCallCompleted)[0].result == {"city": "Ulm", "country": "DE"}
    assert told(model) == ['{"city": "Ulm", "country": "DE"}']


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "place: Field required"),
        ({"place": {}}, "place.city: Field required"),
        ({"place": {"city": "x"}, "y": 1}, "y: "),
    ],
)
async def test_wrong_arguments_are_told_by_their_place_and_the_function_is_not_called(
    arguments: dict[str, Any], words: str
) -> None:
    async def visit(place: Place) -> None:
        raise AssertionError

    recorder, model = await run([Call("visit", arguments), "ok"], tools=[visit])
    assert results(model)[0].is_error
    assert told(model)[0].startswith("the arguments are wrong: ")
    assert words in told(model)[0]
    assert words in recorder.of(ToolCallFailed)[0].error


@pytest.mark.parametrize("value", [None, "", "  \n", "\0", "\x1b[0m"])
async def test_a_function_that_says_nothing_is_said_in_words(value: object) -> None:
    async def quiet() -> object:
        return value

    _, model = await run([Call("quiet"), "ok"], tools=[quiet])
    assert told(model) == ["(no output)"]


@pytest.mark.parametrize("value", [float("nan"), b"\xff\xfe", {1, 2}, Odd, {"x": b"\xff"}, "\ud800"])
async def test_a_function_may_give_back_anything(value: object) -> None:
    async def odd() -> object:
        return value

    recorder, _ = await run([Call("odd"), "ok"], tools=[odd])
    assert recorder.of(ToolCallCompleted)[0].success


async def test_an_error_is_told_to_the_model_and_the_run_goes_on() -> None:
    async def broken() -> None:
        msg = "no such table: plants"
        raise LookupError(msg)

    recorder, model = await run([Call("broken"), "I see."], tools=[broken])
    assert told(model) == ["LookupError: no such table: plants"]
    failed = recorder.of(ToolCallFailed)[0]
    assert (failed.error, failed.code) == ("LookupError: no such table: plants", None)


async def test_a_tool_that_cancels_itself_has_failed_and_nothing_else() -> None:
    async def quits() -> None:
        raise asyncio.CancelledError

    recorder, model = await run([[Call("quits"), Call("quits")], "I see."], tools=[quits])
    assert [block.is_error for block in results(model)] == [True, True]
    assert len(recorder.of(ToolCallFailed)) == 2


async def test_a_very_long_error_is_cut() -> None:
    async def broken() -> None:
        raise ValueError("x" * 1_000_000)

    recorder, model = await run([Call("broken"), "ok"], tools=[broken])
    assert len(told(model)[0]) <= 4000
    assert len(recorder.of(ToolCallFailed)[0].error) <= 4000


async def test_the_context_says_who_calls_and_shows_output() -> None:
    seen: list[AgentContext] = []

    async def work(context: AgentContext) -> str:
        seen.append(context)
        await context.emit(Said(text="half way"))
        return "done"

    recorder, model = await run([Call("work", id="call-7"), "ok"], tools=[work])
    (context,) = seen
    assert (context.session_id, context.tool_call_id, context.tool_name) == (
        recorder.events[0].session_id,
        "call-7",
        "work",
    )
    assert model.requests[0].tools[0].input_schema["properties"] == {}
    assert recorder.text == "ok"
    assert "".join(each.text for each in recorder.of(ToolOutput)) == "half way"


async def test_a_function_streams_a_sandboxed_tool_as_its_step() -> None:
    says = Says()

    async def twice(word: str, context: AgentContext) -> str:
        heard = []
        async with context.stream_tool(says, SaysInput(lines=(word, word), session_id="main")) as session:
            async for chunk in session:
                await context.emit(chunk)
                heard.append(chunk.text)
                if len(heard) == 2:
                    break
        return "+".join(heard)

    recorder, model = await run([Call("twice", {"word": "la"}), "ok"], tools=[twice])
    assert told(model) == ["la+la"]
    assert "".join(each.text for each in recorder.of(ToolOutput)) == "lala"
    assert says.inputs[0].session_id == f"{recorder.events[0].session_id}/main"


async def test_secrets_of_a_function_reach_neither_consumer_nor_model() -> None:
    async def leak(context: AgentContext) -> str:
        for at in range(0, len(SECRET), 5):
            await context.emit(Said(text=SECRET[at : at + 5]))
        return f"token={SECRET}"

    async def fail() -> None:
        raise ValueError(SECRET)

    recorder, model = await run([[Call("leak"), Call("fail")], "ok"], tools=[leak, fail])
    shown = "".join(each.text for each in recorder.of(ToolOutput))
    assert "redacted" in shown.lower()
    everything = shown + "".join(event.model_dump_json() for event in recorder.events) + "".join(told(model))
    assert SECRET not in everything
    assert SECRET[4:] not in everything


async def test_a_tool_may_say_itself_how_it_ended() -> None:
    async def check() -> ToolOutcome:
        return ToolOutcome(result={"passed": 3}, text="3 passed, 1 failed", success=False)

    recorder, model = await run([Call("check"), "ok"], tools=[check])
    assert not recorder.of(ToolCallCompleted)[0].success
    assert results(model)[0].is_error
    assert told(model) == ["3 passed, 1 failed"]


async def test_a_tool_of_ones_own_kind_is_called() -> None:
    class Echo:
        spec = ToolSpec(name="echo", description="Echo.", input_schema={"type": "object"})

        async def call(self, arguments: dict[str, Any], context: AgentContext) -> ToolOutcome:
            return ToolOutcome(result=arguments, text=str(arguments["say"]))

    _, model = await run([Call("echo", {"say": "hello"}), "ok"], tools=[Echo()])
    assert told(model) == ["hello"]
