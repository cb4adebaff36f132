"""`aeolus tail`: log files, read in a sandbox and shown line by line."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from aeolus_sandbox.background import BackgroundTasks
from aeolus_sandbox.capabilities import Grants
from aeolus_sandbox.cli.exits import Exit, code_for_run
from aeolus_sandbox.cli.image_views import parse_age
from aeolus_sandbox.cli.log_views import LogJsonLines, LogLines, LogView, ViewQueue, stdout_watched
from aeolus_sandbox.cli.options import ContainerIsolation, Isolation, Timeout
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.cli.sink import stop_writing
from aeolus_sandbox.cli.tail_grants import access_to, is_pattern
from aeolus_sandbox.guest.logs.patterns import PatternError, compile_pattern
from aeolus_sandbox.limits import LONGEST_WALL_TIME_S, Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.streaming.policies import Window
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.tool import IsolationMode
from aeolus_sandbox.tools.log_tailer import (
    LogChunk,
    LogCursor,
    LogFilter,
    LogFormat,
    LogLevel,
    LogNoticeKind,
    LogResult,
    LogTailerInput,
    LogTailerTool,
    Multiline,
)

_ALL_LINES: Final = Window(max_chunks=10_000, wait_for_reader=True)
"""A screen that is slow loses nothing: the files are read as fast as lines are shown."""
_FAILURES: Final = {LogNoticeKind.REFUSED, LogNoticeKind.UNREADABLE, LogNoticeKind.LOST}
"""Notices of what should have been read and was not."""

LogSession = StreamingToolSession[LogChunk, LogResult]


@dataclass(frozen=True, slots=True)
class CursorFile:
    """A file that says where the next call goes on."""

    path: Path

    def __post_init__(self) -> None:
        """Refuse a place that cannot be written to later, before anything is read."""
        if not self.path.absolute().parent.is_dir():
            msg = f"there is no folder {str(self.path.absolute().parent)!r}"
            raise typer.BadParameter(msg, param_hint="--cursor")

    def read(self) -> LogCursor | None:
        """Return where the last call ended; None: there was none."""
        try:
            return LogCursor.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            msg = f"{str(self.path)!r} is no cursor of ours: remove it to begin anew"
            raise typer.BadParameter(msg, param_hint="--cursor") from error

    def write(self, cursor: LogCursor) -> None:
        """Put a cursor in the place of the one that is there, whole or not at all."""
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(cursor.model_dump_json(), "utf-8")
        new.replace(self.path)


def _moment(text: str | None, option: str) -> datetime | timedelta | None:
    """Return what a time or an age (`2h`) means; a time without a zone is local."""
    if text is None:
        return None
    with suppress(typer.BadParameter):
        return parse_age(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError) as error:
        msg = f"{text!r} is neither an age such as 30m, 2h or 7d, nor a time such as 2024-03-10T09:15"
        raise typer.BadParameter(msg, param_hint=option) from error


def _field(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        msg = f"{text!r} is not NAME=VALUE"
        raise typer.BadParameter(msg, param_hint="--field")
    return name, value


def _pattern(text: str) -> str:
    try:
        compile_pattern(text)
    except PatternError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        msg = f"{name!r} is no time zone that this machine knows: give a name such as Europe/Berlin"
        raise typer.BadParameter(msg) from error
    return name


def tail(
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH", help="Files, or patterns in quotes.", show_default=False)
    ],
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="Go on with what is written, through rotations, until Ctrl-C."),
    ] = False,
    lines: Annotated[
        int | None,
        typer.Option("-n", "--lines", metavar="N", min=0, help="Begin with the last N of each file."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option("--format", help="How the lines are written.")
    ] = LogFormat.AUTO,
    level: Annotated[
        LogLevel | None, typer.Option("--level", help="Only lines of at least this level.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="RE2", parser=_pattern, help="Only lines in which this is found."),
    ] = None,
    exclude: Annotated[
        str | None,
        typer.Option("--exclude", metavar="RE2", parser=_pattern, help="No lines in which this is."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Only from then on: an age (2h) or a time.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="WHEN", help="Only before then.")] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=VALUE", help="Only lines with this field; repeatable."),
    ] = None,
    multiline: Annotated[bool, typer.Option("--multiline", help="Join stack traces to one event.")] = False,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="NAME", parser=_zone, help="The zone of times without one.")
    ] = "UTC",
    json_lines: Annotated[
        bool, typer.Option("--json", help="Write each line, and then the result, as a JSON object on a line.")
    ] = False,
    cursor: Annotated[
        Path | None,
        typer.Option(
            "--cursor", metavar="FILE", dir_okay=False, help="Go on where the last call with it ended."
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="NAME", help="Read files of this group too; default: as far as you may."
        ),
    ] = None,
    timeout: Timeout = None,
    isolation: Isolation = ContainerIsolation.CONTAINER,
) -> None:
    """Show log files line by line, parsed and filtered in a sandbox that sees their folders read-only.

    On a terminal, levels have colours, and what a terminal would obey is made visible. The summary goes to stderr.
    It ends with 1 where a file, or a part of one, could not be read.
    """
    cursor_file = None if cursor is None else CursorFile(cursor)
    tailer_input = LogTailerInput(
        path=tuple(str(Path(path).absolute()) for path in paths),
        follow=follow,
        format=log_format,
        filter=LogFilter(
            level=level,
            pattern=grep,
            exclude=exclude,
            since=_moment(since, "--since"),
            until=_moment(until, "--until"),
            equals=dict(map(_field, fields or [])),
        ),
        tail=lines,
        from_cursor=None if cursor_file is None else cursor_file.read(),
        multiline=Multiline() if multiline else None,
        timezone=timezone,
        timeout_s=timeout,
    )
    reading = Reading(
        tailer_input,
        Grants.of(access_to(tailer_input.paths, groups)),
        LogJsonLines() if json_lines else LogLines(headlines=len(paths) > 1 or any(map(is_pattern, paths))),
        cursor_file,
        isolation.mode,
    )
    raise typer.Exit(run_orderly(reading.run()))


@dataclass(slots=True)
class Reading:
    """One call of the command."""

    tailer_input: LogTailerInput
    grants: Grants
    view: LogView
    cursor_file: CursorFile | None
    isolation: IsolationMode = IsolationMode.CONTAINER
    has_failed: bool = False
    """Whether something could not be read."""

    async def run(self) -> int:
        """Show all lines and then the result, also where a signal ends it; return the exit code."""
        limits = Limits(wall_time_s=LONGEST_WALL_TIME_S)
        async with (
            SessionManager(limits=limits, grants=self.grants) as manager,
            await manager.open(
                LogTailerTool(isolation=self.isolation), self.tailer_input, policy=_ALL_LINES
            ) as session,
        ):
            try:
                await self._show(session)
                result = await self._finish(session)
            except BrokenPipeError:
                stop_writing()
                return Exit.BROKEN_PIPE
            except asyncio.CancelledError:
                await self._end(session)
                raise
        return code_for_run(result.status, success=not self.has_failed)

    async def _end(self, session: LogSession) -> None:
        """End the reading in order, and show what is left."""
        await session.cancel()
        try:
            await self._show(session)
        except BrokenPipeError:  # the same Ctrl-C has ended who reads us
            stop_writing()
            self.cursor_file = None  # nobody knows how far the lines were read
        await self._finish(session)

    async def _finish(self, session: LogSession) -> LogResult:
        result = await session.finalize()
        await asyncio.to_thread(self.view.result, result)
        if self.cursor_file is not None:
            await asyncio.to_thread(self.cursor_file.write, result.cursor)
        return result

    async def _show(self, session: LogSession) -> None:
        """Show the lines until there are no more.

        Raises:
            BrokenPipeError: Nobody reads them any more.
        """
        queue, tasks = ViewQueue(self.view), BackgroundTasks()
        writer = tasks.start(queue.run(), name="show lines", awaited=True)
        reader = tasks.start(self._read(session, queue), name="read lines", awaited=True)
        writer.add_done_callback(lambda _: reader.cancel())  # it ends first only where it has failed
        try:
            with stdout_watched(reader.cancel):
                await asyncio.wait([reader])
        finally:
            reader.cancel()
            await asyncio.wait([reader])
            queue.end()
            await writer
        if reader.cancelled():
            raise BrokenPipeError
        await reader

    async def _read(self, session: LogSession, queue: ViewQueue) -> None:
        async for chunk in session:
            if chunk.notice is not None and chunk.notice.kind in _FAILURES:
                self.has_failed = True
            await queue.put(chunk)
