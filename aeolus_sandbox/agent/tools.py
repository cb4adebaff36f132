"""Tools as an agent's model sees them: streaming tools, and plain functions."""

import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, Protocol, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError

from aeolus_sandbox.agent.context import AgentContext
from aeolus_sandbox.agent.results import (
    IMAGE_TYPES,
    MAX_IMAGE_CHARACTERS,
    MAX_IMAGES,
    ToolOutcome,
    as_json,
    as_text,
    clipped,
    conclusion_of,
    succeeded,
)
from aeolus_sandbox.errors import ConfigurationError, NotInteractive, SessionClosed
from aeolus_sandbox.model.chat import ImageBlock, ToolSpec
from aeolus_sandbox.model.sendable import is_blank
from aeolus_sandbox.streaming.chunks import OutputChunk
from aeolus_sandbox.streaming.clipping import ClippedText
from aeolus_sandbox.streaming.rendering import render_text
from aeolus_sandbox.streaming.stdin import EndOfInput
from aeolus_sandbox.streaming.tool import StreamingTool

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What the Messages API takes as a tool's name."""

AnyTool = "StreamingTool[Any, Any, Any] | Callable[..., Any] | AgentTool"


class AgentTool(Protocol):
    """A tool that an agent's model can call."""

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""
        ...

    async def call(self, arguments: dict[str, Any], context: AgentContext) -> ToolOutcome:
        """Call it and return what it came to.

        Raises:
            ValidationError: The arguments are not what it takes.
            Exception: Whatever keeps it from giving a result; the model is told.
        """
        ...


class SandboxedTool:
    """A streaming tool, opened through the agent's manager for each call."""

    def __init__(self, tool: StreamingTool[Any, Any, Any], *, max_characters: int) -> None:
        self._tool = tool
        self._max_characters = max_characters
        self.spec = ToolSpec(
            name=tool.name, description=tool.description, input_schema=tool.Input.model_json_schema()
        )

    async def call(self, arguments: dict[str, Any], context: AgentContext) -> ToolOutcome:
        """Run the tool, show its chunks while it runs, and return what its policy let through; see `AgentTool`."""
        tool_input = self._tool.Input.model_validate(arguments)
        output = ClippedText(self._max_characters)
        images: list[ImageBlock] = []
        async with context.stream_tool(self._tool, tool_input) as session:
            with suppress(NotInteractive, SessionClosed):  # nobody is there to answer what a program asks
                await session.send_stdin(EndOfInput())
            async for chunk in session:
                await context.output.show(chunk)
                image = image_in(chunk)
                if image is not None and len(images) < MAX_IMAGES:
                    images.append(image)
                output.feed(_text_of(chunk))
            final = await session.finalize()
        text = self._in_words(output, conclusion_of(final))
        return ToolOutcome(result=as_json(final), text=text, images=images, success=succeeded(final))

    def _in_words(self, output: ClippedText, conclusion: str) -> str:
        """Return what was streamed and how it ended, cut once and as a whole, so that the end is in it."""
        conclusion = clipped(conclusion, max(1, self._max_characters // 2))
        streamed = output.rendered(render_text)
        if is_blank(streamed):
            return f"(no output)\n{conclusion}"
        output.feed(conclusion if streamed.endswith("\n") else f"\n{conclusion}")
        return output.rendered(render_text)


class FunctionTool:
    """An async function of the host's, with its parameters as the arguments.

    The schema is made of its annotations, the description of its docstring. A parameter that is annotated as
    `AgentContext` gets the call's context and is none of the model's.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        """Take a function.

        Raises:
            ConfigurationError: It is not an async function, or a parameter has no annotation.
        """
        name = getattr(function, "__name__", "")
        if not inspect.iscoroutinefunction(function):
            msg = f"{name or function!r} is not an async function: tools are `async def`"
            raise ConfigurationError(msg)
        self._function = function
        self._context_names, self._model = _parameters_of(function, name)
        self.spec = ToolSpec(
            name=name,
            description=inspect.getdoc(function) or name,
            input_schema=self._model.model_json_schema(),
        )

    async def call(self, arguments: dict[str, Any], context: AgentContext) -> ToolOutcome:
        """Call the function; see `AgentTool`."""
        checked = self._model.model_validate(arguments)
        values = {
            str(field.alias): getattr(checked, name) for name, field in type(checked).model_fields.items()
        }
        found = await self._function(**values, **dict.fromkeys(self._context_names, context))
        if isinstance(found, ToolOutcome):
            return found
        return ToolOutcome(result=as_json(found), text="" if found is None else as_text(found))


class _Arguments(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


def _parameters_of(function: Callable[..., Any], name: str) -> tuple[list[str], type[BaseModel]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        msg = f"the annotations of the tool {name!r} cannot be understood: {error}"
        raise ConfigurationError(msg) from error
    contexts: list[str] = []
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        hint = hints.get(parameter.name)
        if hint is AgentContext:
            contexts.append(parameter.name)
            continue
        if hint is None or parameter.kind in {
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
            parameter.POSITIONAL_ONLY,
        }:
            msg = f"the parameter {parameter.name!r} of the tool {name!r} needs an annotation, and a name to be given by"
            raise ConfigurationError(msg)
        default = ... if parameter.default is parameter.empty else parameter.default
        # By their aliases: a parameter may be called what a field of a model may not.
        fields[f"argument_{number}"] = (hint, Field(default, alias=parameter.name, title=parameter.name))
    try:
        return contexts, create_model(f"{name}_arguments", __base__=_Arguments, **fields)
    except PydanticUserError as error:
        msg = f"the parameters of the tool {name!r} have types that no JSON has: {error.message}"
        raise ConfigurationError(msg) from error


def agent_tools(tools: Sequence[Any], *, max_characters: int) -> dict[str, AgentTool]:
    """Return tools by their names.

    Raises:
        ConfigurationError: One is no tool, or has a name that no model can call, or that another one has.
    """
    found: dict[str, AgentTool] = {}
    for tool in tools:
        made = _agent_tool(tool, max_characters)
        if not _NAME.fullmatch(made.spec.name):
            msg = f"{made.spec.name!r} cannot be a tool's name: 1 to 64 letters, digits, underscores and hyphens"
            raise ConfigurationError(msg)
        if made.spec.name in found:
            msg = f"two tools are called {made.spec.name!r}: give one of them another name"
            raise ConfigurationError(msg)
        found[made.spec.name] = made
    return found


def _agent_tool(tool: Any, max_characters: int) -> AgentTool:
    if isinstance(tool, StreamingTool):
        return SandboxedTool(tool, max_characters=max_characters)
    if hasattr(tool, "spec") and hasattr(tool, "call"):
        made: AgentTool = tool
        return made
    if callable(tool):
        return FunctionTool(tool)
    msg = f"{tool!r} is no tool: give a StreamingTool, an async function, or an AgentTool"
    raise ConfigurationError(msg)


def image_in(chunk: OutputChunk) -> ImageBlock | None:
    """Return the image that a chunk is, where it is one that a model can see."""
    media_type, content = getattr(chunk, "mime_type", None), getattr(chunk, "content", None)
    if media_type not in IMAGE_TYPES or not isinstance(content, str) or len(content) > MAX_IMAGE_CHARACTERS:
        return None
    return ImageBlock(media_type=media_type, data="".join(content.split()))


def _text_of(chunk: OutputChunk) -> str:
    """Return a chunk's text, and what is missing before it; one that stands alone is a line of its own."""
    text = chunk.as_text()
    missing = f"\n[... {chunk.dropped_bytes} bytes were dropped here ...]\n" if chunk.dropped_bytes else ""
    return missing + (text if chunk.flow() is not None or not text else f"{text}\n")
