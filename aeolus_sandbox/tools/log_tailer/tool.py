"""`LogTailerTool`: log files of the host, read in a container that sees nothing else of it."""

import asyncio
import grp
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import ValidationError

from aeolus_sandbox.capabilities import CapabilityKind, ReadLogs
from aeolus_sandbox.errors import CheckpointConflict, ConfigurationError
from aeolus_sandbox.guest.logs import frames
from aeolus_sandbox.profiles import SandboxProfile
from aeolus_sandbox.streaming.policies import Policy, Window
from aeolus_sandbox.streaming.tool import (
    CancelToken,
    IsolationMode,
    StreamingTool,
    StreamingToolHandle,
    ToolContext,
    in_container,
)
from aeolus_sandbox.tools.log_tailer.batches import LogCodec
from aeolus_sandbox.tools.log_tailer.chunks import LogChunk
from aeolus_sandbox.tools.log_tailer.models import (
    LogCursor,
    LogResult,
    LogTailerInput,
    Moment,
    Multiline,
)
from aeolus_sandbox.tools.log_tailer.paths import LogPaths, find_paths
from aeolus_sandbox.tools.log_tailer.replies import EPOCH
from aeolus_sandbox.tools.log_tailer.tailer import Tailer

IMAGE: Final = "log-tailer"
_OP: Final = 1


class LogTailerTool(StreamingTool[LogTailerInput, LogChunk, LogResult]):
    """Read log files of the host: parsed, filtered, and followed through rotations."""

    name: ClassVar[str] = "log_tailer"
    description: ClassVar[str] = (
        "Read or follow log files (JSON, syslog, web server, key=value or plain lines), filtered by level, time, "
        "pattern or field. Each line comes with its message, level, time and fields. Only files below the folders "
        "that were granted can be read, and none can be changed."
    )
    Input = LogTailerInput
    OutputChunk = LogChunk
    Final = LogResult
    policy: Policy = Window(max_chunks=200, wait_for_reader=True)
    isolation: IsolationMode = IsolationMode.CONTAINER
    idempotent = True
    required_capability = CapabilityKind.READ_LOGS

    def __init__(self, *, image: str = IMAGE, isolation: IsolationMode = IsolationMode.CONTAINER) -> None:
        """Configure the tool.

        Args:
            image: A name of our images, or any image on the engine, with the log tailer's program inside.
            isolation: Which kernel its containers run on.

        Raises:
            ConfigurationError: The isolation knows no containers.
        """
        self.isolation = in_container(isolation, self.name)
        self.image = image

    @property
    def can_wait(self) -> bool:
        """Whether it may be kept waiting: the guest has little under way that the host has not asked for."""
        return True

    async def start(
        self, tool_input: LogTailerInput, context: ToolContext
    ) -> StreamingToolHandle[LogChunk, LogResult]:
        """Start the reading; see `StreamingTool.start`.

        Raises:
            LogPathRefused: A path leads out of what may be read, or to what is no file.
            CheckpointConflict: An earlier attempt's progress is not one of this version of the tool.
            SessionBroken: The container ended at once, or takes no input.
            GuestProtocolError: The image holds no log tailer of ours.
        """
        start = _start(tool_input, context.progress)
        await asyncio.to_thread(_check_zone, tool_input.timezone)
        groups = await asyncio.to_thread(_group_numbers, context.log_access)
        found = await asyncio.to_thread(
            find_paths,
            tool_input.paths,
            context.log_access,
            is_glob=tool_input.glob,
            follow=tool_input.follow,
        )
        try:
            process = await context.run(
                SandboxProfile(
                    image=self.image,
                    argv=("aeolus-log-tailer",),
                    mounts=found.folders.mounts,
                    groups=groups,
                )
            )
            tailer = Tailer(process, start=start)
            # gVisor has numbers of its own for the host's files, and does not hear of what happens to them.
            shares_kernel = self.isolation is not IsolationMode.GVISOR
            request = _request(tool_input, found, start, hears_changes=shares_kernel)
            await tailer.open(request, found.folders, by_number=shares_kernel)
        finally:
            found.folders.close()
        return StreamingToolHandle(
            chunks=tailer.chunks(),
            finalize=tailer.result(),
            cancel=CancelToken(tailer.stop),
            progress=tailer,
        )

    def codec(self) -> LogCodec:
        """Return the codec of batches of lines."""
        return LogCodec()


def _start(tool_input: LogTailerInput, progress: str | None) -> LogCursor:
    """Return where to begin: where an earlier attempt at this run came to, or where the input says."""
    if progress is None:
        return tool_input.from_cursor or LogCursor()
    try:
        return LogCursor.model_validate_json(progress)
    except ValidationError as error:
        msg = "the progress that an earlier attempt has stored is not one of this version of the tool: use a new key"
        raise CheckpointConflict(msg) from error


def _check_zone(name: str) -> None:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        msg = f"{name!r} is no time zone that this machine knows: give an IANA name such as 'Europe/Berlin'"
        raise ConfigurationError(msg) from error


def _group_numbers(access: ReadLogs) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_group_number(group) for group in access.groups))


def _group_number(group: str | int) -> int:
    if isinstance(group, int):
        return group
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError as error:
        msg = f"this host has no group {group!r}, whose log files were granted to be read"
        raise ConfigurationError(msg) from error


def _request(
    tool_input: LogTailerInput, found: LogPaths, start: LogCursor, *, hears_changes: bool
) -> frames.Tail:
    wanted = tool_input.filter
    now = datetime.now(UTC)
    return frames.Tail(
        op=_OP,
        paths=list(found.paths),
        mounts=found.folders.paths,
        follow=tool_input.follow,
        format=tool_input.format,
        level=None if wanted.level is None else wanted.level.severity,
        keeps_unknown_level=wanted.keeps_unknown_level,
        pattern=wanted.pattern,
        exclude=wanted.exclude,
        since_us=_microseconds(wanted.since, now),
        until_us=_microseconds(wanted.until, now),
        equals=wanted.equals,
        tail_lines=tool_input.tail,
        cursor=_positions(start),
        join=_join(tool_input.multiline),
        zone=tool_input.timezone,
        max_line_bytes=tool_input.max_line_bytes,
        uses_events=hears_changes and tool_input.watch == "auto",
    )


def _join(multiline: Multiline | None) -> frames.Join | None:
    if multiline is None:
        return None
    return frames.Join(start=multiline.start, max_lines=multiline.max_lines, wait_s=multiline.wait_s)


def _positions(cursor: LogCursor) -> list[frames.FilePosition]:
    return [frames.FilePosition(**position.model_dump()) for position in cursor.positions]


def _microseconds(moment: Moment | None, now: datetime) -> int | None:
    if moment is None:
        return None
    at = now - moment if isinstance(moment, timedelta) else moment
    return (at - EPOCH) // timedelta(microseconds=1)
