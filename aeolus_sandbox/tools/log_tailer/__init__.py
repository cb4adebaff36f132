"""The log tailer tool: log files of the host, parsed, filtered and followed, from a container that sees nothing else."""

from aeolus_sandbox.tools.log_tailer.chunks import LogChunk, LogFlag, LogNotice, LogNoticeKind
from aeolus_sandbox.tools.log_tailer.fields import LogFields
from aeolus_sandbox.tools.log_tailer.models import (
    LogCursor,
    LogFilter,
    LogFormat,
    LogLevel,
    LogPosition,
    LogResult,
    LogTailerInput,
    Multiline,
)
from aeolus_sandbox.tools.log_tailer.tool import LogTailerTool

__all__ = [
    "LogChunk",
    "LogCursor",
    "LogFields",
    "LogFilter",
    "LogFlag",
    "LogFormat",
    "LogLevel",
    "LogNotice",
    "LogNoticeKind",
    "LogPosition",
    "LogResult",
    "LogTailerInput",
    "LogTailerTool",
    "Multiline",
]
