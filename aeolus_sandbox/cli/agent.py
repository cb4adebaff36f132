"""`aeolus agent`: a language model that works on a prompt with sandboxed tools, shown as it goes."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.capabilities import SANDBOXED, CapabilityKind, Grants, ReadLogs
from aeolus_sandbox.cli.agent_views import EventLines
from aeolus_sandbox.cli.exits import Exit, say
from aeolus_sandbox.cli.options import Timeout
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.cli.sink import stop_writing
from aeolus_sandbox.consumers.console import ConsoleConsumer
from aeolus_sandbox.consumers.multi import MultiConsumer
from aeolus_sandbox.consumers.trace import TraceConsumer
from aeolus_sandbox.events import StreamConsumer
from aeolus_sandbox.storage.history import History
from aeolus_sandbox.tools.code_interpreter import CodeInterpreterTool
from aeolus_sandbox.tools.terminal import TerminalTool

_MODEL: Final = "anthropic/claude-sonnet-4-5"
_SYSTEM: Final = (
    "You answer with the help of tools that run in isolated containers without network. Run code to find out what can "
    "be found out or computed that way; files of one call are gone with it, unless a session is kept."
)
_ANSWER_TOKENS: Final = 8192
_STDIN: Final = "-"


class ToolName(StrEnum):
    """A tool that an agent of the command line can have."""

    TERMINAL = "terminal"
    CODE_INTERPRETER = "code_interpreter"
    LOG_TAILER = "log_tailer"


_USUAL_TOOLS: Final = (ToolName.TERMINAL, ToolName.CODE_INTERPRETER)


@dataclass(frozen=True, slots=True)
class AgentCall:
    """One call of the command."""

    prompt: str
    settings: dict[str, Any]
    view: StreamConsumer
    trace: Path | None
    history: Path | None
    conversation_id: str | None
    timeout_s: float | None

    async def run(self) -> int:
        """Run the agent and return the exit code."""
        async with AsyncExitStack() as stack:
            history = None
            if self.history is not None:
                history = await stack.enter_async_context(History(self.history))
            agent = await stack.enter_async_context(Agent(**self.settings, history=history))
            limit = asyncio.timeout(self.timeout_s)
            try:
                async with limit:
                    session = await self._run(agent)
            except BrokenPipeError:
                stop_writing()
                return Exit.BROKEN_PIPE
            except TimeoutError:
                if not limit.expired():
                    raise
                say(f"it was ended after {self.timeout_s:g} s")
                return Exit.TIMED_OUT
        if self.history is not None:
            say(
                f"to go on: aeolus agent --history {str(self.history)!r} --continue {session.session_id} PROMPT"
            )
        return Exit.SUCCESS

    async def _run(self, agent: Agent) -> Any:
        consumer = MultiConsumer().add(self.view)
        if self.trace is not None:
            consumer.add(TraceConsumer(self.trace), on_error="ignore")  # it logs what it could not write
        if self.conversation_id is not None:
            return await agent.continue_session(self.conversation_id, self.prompt, consumer)
        return await agent.run_streaming(self.prompt, consumer)


def agent(
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="What to do; - reads it from stdin.", show_default=False)
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="PROVIDER/NAME", help="The language model.")
    ] = _MODEL,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="Another system prompt than the usual one.")
    ] = None,
    tools: Annotated[
        list[ToolName] | None,
        typer.Option(
            "--tool", help="A tool that it may call; repeatable. Default: terminal, code_interpreter."
        ),
    ] = None,
    allow_packages: Annotated[
        bool,
        typer.Option(
            "--allow-packages", help="It may have images built with packages of its choice, with network."
        ),
    ] = False,
    read_logs: Annotated[
        list[Path] | None,
        typer.Option(
            "--read-logs", metavar="DIR", help="log_tailer may read what is below this folder; repeatable."
        ),
    ] = None,
    max_turns: Annotated[int, typer.Option("--max-turns", min=1, help="How many answers it may take.")] = 50,
    timeout: Timeout = None,
    thinking: Annotated[
        int | None,
        typer.Option(
            "--thinking", metavar="TOKENS", min=1024, help="How much it may think before each answer."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace", metavar="DIR", file_okay=False, help="Write all events into a JSONL file here."
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", dir_okay=False, help="Keep the conversation in this file."),
    ] = None,
    conversation: Annotated[
        str | None,
        typer.Option("--continue", metavar="ID", help="Go on with a conversation of the --history."),
    ] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Write each event as a JSON object on a line.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="Save images here, numbered.")
    ] = None,
) -> None:
    """Let a language model work on PROMPT with sandboxed tools, and show what it says and does as it goes.

    It needs the key ANTHROPIC_API_KEY. What its tools may do is said here and nowhere else: the model cannot ask for
    more.
    """
    if conversation is not None and history is None:
        msg = "it needs --history FILE, where the conversation is"
        raise typer.BadParameter(msg, param_hint="--continue")
    chosen = tuple(dict.fromkeys(tools or _USUAL_TOOLS))
    grants = _grants(chosen, allow_packages=allow_packages, read_logs=read_logs or [])
    call = AgentCall(
        prompt=sys.stdin.buffer.read().decode("utf-8", "replace") if prompt == _STDIN else prompt,
        settings={
            "name": "aeolus",
            "model": model,
            "system_prompt": _SYSTEM if system is None else system,
            "tools": _tools(chosen),
            "grants": grants,
            "max_turns": max_turns,
            "max_tokens": _ANSWER_TOKENS + (thinking or 0),
            "thinking_tokens": thinking,
        },
        view=EventLines(out) if json_lines else ConsoleConsumer(plots_folder=out),
        trace=trace,
        history=history,
        conversation_id=conversation,
        timeout_s=timeout,
    )
    raise typer.Exit(run_orderly(call.run()))


def _grants(tools: Sequence[ToolName], *, allow_packages: bool, read_logs: Sequence[Path]) -> Grants:
    if ToolName.LOG_TAILER in tools and not read_logs:
        msg = "log_tailer needs --read-logs DIR, which says what it may read"
        raise typer.BadParameter(msg, param_hint="--tool")
    kinds = [*SANDBOXED.kinds, *([CapabilityKind.INSTALL_PACKAGES] if allow_packages else [])]
    return Grants.of(*kinds, ReadLogs(roots=tuple(str(folder.resolve()) for folder in read_logs)))


def _tools(names: Sequence[ToolName]) -> list[Any]:
    made: list[Any] = []
    for name in names:
        match name:
            case ToolName.TERMINAL:
                made.append(TerminalTool())
            case ToolName.CODE_INTERPRETER:
                made.append(CodeInterpreterTool())
            case ToolName.LOG_TAILER:
                from aeolus_sandbox.tools.log_tailer import LogTailerTool

                made.append(LogTailerTool())
    return made
