"""`aeolus traces`: what agents did, from the files of their trace consumers."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from aeolus_sandbox.cli.exits import say
from aeolus_sandbox.cli.state import (
    DEFAULT_LIMIT,
    JsonLines,
    Limit,
    age_of,
    fail,
    is_screen,
    say_more,
    write_json,
    write_lines,
    write_table,
)
from aeolus_sandbox.cli.trace_sources import Traces, TraceSummary, open_traces
from aeolus_sandbox.consumers.console import ConsoleConsumer
from aeolus_sandbox.consumers.delivery import deliver
from aeolus_sandbox.consumers.trace_file import TraceLine, format_line

_COLUMNS: Final = ("session", "state", "began", "lines", "model", "agent")

TracePath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        exists=True,
        help="A folder of JSONL traces, one of its files, or an SQLite trace file.",
        show_default=False,
    ),
]
SessionId = Annotated[
    str | None, typer.Argument(metavar="[SESSION]", help="The id; default: the latest one.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="Save images here, numbered.")
]

app = typer.Typer(help="List, show and export the traces of agents.", no_args_is_help=True)


@app.command("list")
def list_traces(path: TracePath, limit: Limit = DEFAULT_LIMIT, json_lines: JsonLines = False) -> None:
    """List the sessions, latest first; a pipe gets a line for each, with tabs between the columns."""
    found = asyncio.run(_sessions(open_traces(path), limit + 1))
    shown = found[:limit]
    if json_lines:
        for session in shown:
            write_json(asdict(session))
    elif not shown:
        say("there is no trace")
    elif is_screen():
        write_table(_COLUMNS, [_row(session, f"{age_of(session.began)} ago") for session in shown])
    else:
        write_lines(_row(session, session.began.isoformat()) for session in shown)
    if len(found) > limit:
        say_more(limit)


@app.command()
def show(path: TracePath, session: SessionId = None, out: Out = None) -> None:
    """Show a session as its console would have shown it; on a terminal nothing in it is obeyed."""
    traces = open_traces(path)

    async def work() -> None:
        console = ConsoleConsumer(plots_folder=out)
        async with aclosing(_lines(traces, session)) as lines:
            async for line in lines:
                if line.lost_events:
                    await console.aclose()
                    say(f"{line.lost_events} events are missing here")
                await deliver(console, line.event)
        await console.aclose()

    asyncio.run(work())


@app.command()
def export(path: TracePath, session: SessionId = None) -> None:
    """Write a session's events as JSON lines of ASCII: when each came, and the event."""
    traces = open_traces(path)

    async def work() -> None:
        async with aclosing(_lines(traces, session)) as lines:
            async for line in lines:
                await asyncio.to_thread(sys.stdout.buffer.write, format_line(line))
        await asyncio.to_thread(sys.stdout.buffer.flush)

    asyncio.run(work())


async def _sessions(traces: Traces, limit: int) -> list[TraceSummary]:
    async with aclosing(traces):
        return await traces.sessions(limit)


async def _lines(traces: Traces, session: str | None) -> AsyncGenerator[TraceLine, None]:
    """Yield the lines of a session, which must be there."""
    async with aclosing(traces):
        if session is None:
            latest = await traces.sessions(1)
            session = latest[0].session_id if latest else None
        found = False
        if session is not None:
            async with aclosing(traces.lines(session)) as lines:
                async for line in lines:
                    found = True
                    yield line
        if not found:
            fail("there is no trace" if session is None else f"there is no trace of the session {session!r}")


def _row(session: TraceSummary, began: str) -> tuple[str, ...]:
    return (session.session_id, session.state, began, str(session.lines), session.model, session.agent)
