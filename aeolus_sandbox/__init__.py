"""aeolus_sandbox: run untrusted code in ephemeral Docker containers and stream what it does.

Everything public is importable from here. Names are loaded when they are first used, so that `import aeolus_sandbox`
costs next to nothing, and whoever wants a shell does not pay for anything else.
"""

import importlib
from typing import TYPE_CHECKING, Any

from aeolus_sandbox.version import __version__

if TYPE_CHECKING:
    from aeolus_sandbox.agent.agent import (
        Agent,
    )
    from aeolus_sandbox.agent.builder import (
        StreamBuilder,
    )
    from aeolus_sandbox.agent.context import (
        AgentContext,
    )
    from aeolus_sandbox.agent.results import (
        ToolOutcome,
    )
    from aeolus_sandbox.agent.session import (
        AgentSession,
    )
    from aeolus_sandbox.agent.tools import (
        AgentTool,
    )
    from aeolus_sandbox.approvers import (
        AllOf,
        AnyOf,
        CallbackApprover,
        ConsoleApprover,
        QueueApprover,
    )
    from aeolus_sandbox.capabilities import (
        SANDBOXED,
        CapabilityKind,
        Grants,
        ReadLogs,
    )
    from aeolus_sandbox.consumers.callback import (
        CallbackConsumer,
    )
    from aeolus_sandbox.consumers.channel import (
        ChannelConsumer,
        EventsDropped,
    )
    from aeolus_sandbox.consumers.console import (
        ConsoleConsumer,
    )
    from aeolus_sandbox.consumers.multi import (
        MultiConsumer,
    )
    from aeolus_sandbox.consumers.sqlite_trace import (
        SqliteTraceConsumer,
    )
    from aeolus_sandbox.consumers.trace import (
        TraceConsumer,
    )
    from aeolus_sandbox.errors import (
        AeolusError,
        AgentError,
        ApprovalDenied,
        ApprovalError,
        ApprovalNotFound,
        ApprovalTimedOut,
        ArtifactError,
        CapabilityDenied,
        CheckpointBusy,
        CheckpointConflict,
        CheckpointError,
        CodeRefused,
        CommandRefused,
        ConfigurationError,
        ConsumerError,
        ConversationConflict,
        ConversationNotFound,
        EngineError,
        EngineTimeout,
        EngineUnavailable,
        GuestProtocolError,
        ImageBuildFailed,
        ImageNotFound,
        LaunchFailed,
        LogPathRefused,
        ModelError,
        ModelUnavailable,
        NotInteractive,
        QuotaExceeded,
        RunInterrupted,
        RuntimeMissing,
        SessionBroken,
        SessionBusy,
        SessionClosed,
        SessionError,
        ShellMissing,
        StorageBusy,
        StorageError,
        StorageFull,
        TurnLimitReached,
    )
    from aeolus_sandbox.events import (
        AggregatedUsage,
        StreamConsumer,
        StreamEvent,
        parse_event,
    )
    from aeolus_sandbox.exit_status import (
        ExitStatus,
        Stop,
    )
    from aeolus_sandbox.limits import (
        LimitName,
        Limits,
    )
    from aeolus_sandbox.manager import (
        SessionManager,
    )
    from aeolus_sandbox.model.anthropic import (
        AnthropicModels,
    )
    from aeolus_sandbox.model.chat import (
        ChatMessage,
        ChatModel,
    )
    from aeolus_sandbox.profiles import (
        Mount,
        SandboxProfile,
    )
    from aeolus_sandbox.sandboxes.kept_sessions import (
        KeptSession,
        KeptSessions,
    )
    from aeolus_sandbox.sandboxes.pool_settings import (
        PoolSettings,
        PoolStats,
    )
    from aeolus_sandbox.sandboxes.warm_pool import (
        WarmPool,
    )
    from aeolus_sandbox.storage.history import (
        Conversation,
        ConversationSummary,
        History,
    )
    from aeolus_sandbox.streaming.approval import (
        ApprovalRequest,
        Approve,
        Approver,
        Decision,
        Deny,
        Edit,
        TimeoutAction,
    )
    from aeolus_sandbox.streaming.chunks import (
        BatchCodec,
        ChunkBatch,
        ChunkCodec,
        JsonCodec,
        OutputChunk,
        Span,
        SummaryChunk,
    )
    from aeolus_sandbox.streaming.clipping import (
        clip_text,
    )
    from aeolus_sandbox.streaming.filters import (
        CleanControls,
        Filter,
        Redact,
        TextFilter,
    )
    from aeolus_sandbox.streaming.held_files import (
        WorkspaceFiles,
    )
    from aeolus_sandbox.streaming.policies import (
        Buffer,
        ContextWindow,
        Manual,
        Policy,
        Summarise,
        Window,
    )
    from aeolus_sandbox.streaming.progress import (
        Progress,
    )
    from aeolus_sandbox.streaming.rendering import (
        render_text,
    )
    from aeolus_sandbox.streaming.sandbox import (
        Process,
        Sandbox,
    )
    from aeolus_sandbox.streaming.session import (
        StreamingToolSession,
    )
    from aeolus_sandbox.streaming.source_file import (
        SourceFile,
    )
    from aeolus_sandbox.streaming.stdin import (
        Bytes,
        EndOfInput,
        Resize,
        Signal,
        StdinChannel,
        StdinEvent,
        StdinSender,
        Text,
        UnixSignal,
    )
    from aeolus_sandbox.streaming.text_model import (
        TextModel,
    )
    from aeolus_sandbox.streaming.tool import (
        CancelToken,
        IsolationMode,
        StreamingTool,
        StreamingToolHandle,
        ToolContext,
    )
    from aeolus_sandbox.tools.code_interpreter import (
        Artifact,
        BoxSummary,
        Chart,
        ChartAxis,
        ChartPlot,
        ChartSeries,
        CodeChunk,
        CodeError,
        CodeFinding,
        CodeInterpreterInput,
        CodeInterpreterTool,
        CodePolicy,
        CodeResult,
        Table,
        TableColumn,
    )
    from aeolus_sandbox.tools.log_tailer import (
        LogChunk,
        LogCursor,
        LogFields,
        LogFilter,
        LogFlag,
        LogFormat,
        LogLevel,
        LogNotice,
        LogNoticeKind,
        LogPosition,
        LogResult,
        LogTailerInput,
        LogTailerTool,
        Multiline,
    )
    from aeolus_sandbox.tools.terminal import (
        TerminalChunk,
        TerminalInput,
        TerminalResult,
        TerminalTool,
    )
    from aeolus_sandbox.tools.terminal.command_check import (
        CommandPolicy,
        Finding,
        check_command,
    )

_MODULES = {
    "agent.agent": ("Agent",),
    "agent.builder": ("StreamBuilder",),
    "agent.context": ("AgentContext",),
    "agent.results": ("ToolOutcome",),
    "agent.session": ("AgentSession",),
    "agent.tools": ("AgentTool",),
    "approvers": (
        "AllOf",
        "AnyOf",
        "CallbackApprover",
        "ConsoleApprover",
        "QueueApprover",
    ),
    "capabilities": (
        "SANDBOXED",
        "CapabilityKind",
        "Grants",
        "ReadLogs",
    ),
    "consumers.callback": ("CallbackConsumer",),
    "consumers.channel": (
        "ChannelConsumer",
        "EventsDropped",
    ),
    "consumers.console": ("ConsoleConsumer",),
    "consumers.multi": ("MultiConsumer",),
    "consumers.sqlite_trace": ("SqliteTraceConsumer",),
    "consumers.trace": ("TraceConsumer",),
    "errors": (
        "AeolusError",
        "AgentError",
        "ApprovalDenied",
        "ApprovalError",
        "ApprovalNotFound",
        "ApprovalTimedOut",
        "ArtifactError",
        "CapabilityDenied",
        "CheckpointBusy",
        "CheckpointConflict",
        "CheckpointError",
        "CodeRefused",
        "CommandRefused",
        "ConfigurationError",
        "ConsumerError",
        "ConversationConflict",
        "ConversationNotFound",
        "EngineError",
        "EngineTimeout",
        "EngineUnavailable",
        "GuestProtocolError",
        "ImageBuildFailed",
        "ImageNotFound",
        "LaunchFailed",
        "LogPathRefused",
        "ModelError",
        "ModelUnavailable",
        "NotInteractive",
        "QuotaExceeded",
        "RunInterrupted",
        "RuntimeMissing",
        "SessionBroken",
        "SessionBusy",
        "SessionClosed",
        "SessionError",
        "ShellMissing",
        "StorageBusy",
        "StorageError",
        "StorageFull",
        "TurnLimitReached",
    ),
    "events": (
        "AggregatedUsage",
        "StreamConsumer",
        "StreamEvent",
        "parse_event",
    ),
    "exit_status": (
        "ExitStatus",
        "Stop",
    ),
    "limits": (
        "LimitName",
        "Limits",
    ),
    "manager": ("SessionManager",),
    "model.anthropic": ("AnthropicModels",),
    "model.chat": (
        "ChatMessage",
        "ChatModel",
    ),
    "profiles": (
        "Mount",
        "SandboxProfile",
    ),
    "sandboxes.kept_sessions": (
        "KeptSession",
        "KeptSessions",
    ),
    "sandboxes.pool_settings": (
        "PoolSettings",
        "PoolStats",
    ),
    "sandboxes.warm_pool": ("WarmPool",),
    "storage.history": (
        "Conversation",
        "ConversationSummary",
        "History",
    ),
    "streaming.approval": (
        "ApprovalRequest",
        "Approve",
        "Approver",
        "Decision",
        "Deny",
        "Edit",
        "TimeoutAction",
    ),
    "streaming.chunks": (
        "BatchCodec",
        "ChunkBatch",
        "ChunkCodec",
        "JsonCodec",
        "OutputChunk",
        "Span",
        "SummaryChunk",
    ),
    "streaming.clipping": ("clip_text",),
    "streaming.filters": (
        "CleanControls",
        "Filter",
        "Redact",
        "TextFilter",
    ),
    "streaming.held_files": ("WorkspaceFiles",),
    "streaming.policies": (
        "Buffer",
        "ContextWindow",
        "Manual",
        "Policy",
        "Summarise",
        "Window",
    ),
    "streaming.progress": ("Progress",),
    "streaming.rendering": ("render_text",),
    "streaming.sandbox": (
        "Process",
        "Sandbox",
    ),
    "streaming.session": ("StreamingToolSession",),
    "streaming.source_file": ("SourceFile",),
    "streaming.stdin": (
        "Bytes",
        "EndOfInput",
        "Resize",
        "Signal",
        "StdinChannel",
        "StdinEvent",
        "StdinSender",
        "Text",
        "UnixSignal",
    ),
    "streaming.text_model": ("TextModel",),
    "streaming.tool": (
        "CancelToken",
        "IsolationMode",
        "StreamingTool",
        "StreamingToolHandle",
        "ToolContext",
    ),
    "tools.code_interpreter": (
        "Artifact",
        "BoxSummary",
        "Chart",
        "ChartAxis",
        "ChartPlot",
        "ChartSeries",
        "CodeChunk",
        "CodeError",
        "CodeFinding",
        "CodeInterpreterInput",
        "CodeInterpreterTool",
        "CodePolicy",
        "CodeResult",
        "Table",
        "TableColumn",
    ),
    "tools.log_tailer": (
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
    ),
    "tools.terminal": (
        "TerminalChunk",
        "TerminalInput",
        "TerminalResult",
        "TerminalTool",
    ),
    "tools.terminal.command_check": (
        "CommandPolicy",
        "Finding",
        "check_command",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "SANDBOXED",
    "AeolusError",
    "Agent",
    "AgentContext",
    "AgentError",
    "AgentSession",
    "AgentTool",
    "AggregatedUsage",
    "AllOf",
    "AnthropicModels",
    "AnyOf",
    "ApprovalDenied",
    "ApprovalError",
    "ApprovalNotFound",
    "ApprovalRequest",
    "ApprovalTimedOut",
    "Approve",
    "Approver",
    "Artifact",
    "ArtifactError",
    "BatchCodec",
    "BoxSummary",
    "Buffer",
    "Bytes",
    "CallbackApprover",
    "CallbackConsumer",
    "CancelToken",
    "CapabilityDenied",
    "CapabilityKind",
    "ChannelConsumer",
    "Chart",
    "ChartAxis",
    "ChartPlot",
    "ChartSeries",
    "ChatMessage",
    "ChatModel",
    "CheckpointBusy",
    "CheckpointConflict",
    "CheckpointError",
    "ChunkBatch",
    "ChunkCodec",
    "CleanControls",
    "CodeChunk",
    "CodeError",
    "CodeFinding",
    "CodeInterpreterInput",
    "CodeInterpreterTool",
    "CodePolicy",
    "CodeRefused",
    "CodeResult",
    "CommandPolicy",
    "CommandRefused",
    "ConfigurationError",
    "ConsoleApprover",
    "ConsoleConsumer",
    "ConsumerError",
    "ContextWindow",
    "Conversation",
    "ConversationConflict",
    "ConversationNotFound",
    "ConversationSummary",
    "Decision",
    "Deny",
    "Edit",
    "EndOfInput",
    "EngineError",
    "EngineTimeout",
    "EngineUnavailable",
    "EventsDropped",
    "ExitStatus",
    "Filter",
    "Finding",
    "Grants",
    "GuestProtocolError",
    "History",
    "ImageBuildFailed",
    "ImageNotFound",
    "IsolationMode",
    "JsonCodec",
    "KeptSession",
    "KeptSessions",
    "LaunchFailed",
    "LimitName",
    "Limits",
    "LogChunk",
    "LogCursor",
    "LogFields",
    "LogFilter",
    "LogFlag",
    "LogFormat",
    "LogLevel",
    "LogNotice",
    "LogNoticeKind",
    "LogPathRefused",
    "LogPosition",
    "LogResult",
    "LogTailerInput",
    "LogTailerTool",
    "Manual",
    "ModelError",
    "ModelUnavailable",
    "Mount",
    "MultiConsumer",
    "Multiline",
    "NotInteractive",
    "OutputChunk",
    "Policy",
    "PoolSettings",
    "PoolStats",
    "Process",
    "Progress",
    "QueueApprover",
    "QuotaExceeded",
    "ReadLogs",
    "Redact",
    "Resize",
    "RunInterrupted",
    "RuntimeMissing",
    "Sandbox",
    "SandboxProfile",
    "SessionBroken",
    "SessionBusy",
    "SessionClosed",
    "SessionError",
    "SessionManager",
    "ShellMissing",
    "Signal",
    "SourceFile",
    "Span",
    "SqliteTraceConsumer",
    "StdinChannel",
    "StdinEvent",
    "StdinSender",
    "Stop",
    "StorageBusy",
    "StorageError",
    "StorageFull",
    "StreamBuilder",
    "StreamConsumer",
    "StreamEvent",
    "StreamingTool",
    "StreamingToolHandle",
    "StreamingToolSession",
    "Summarise",
    "SummaryChunk",
    "Table",
    "TableColumn",
    "TerminalChunk",
    "TerminalInput",
    "TerminalResult",
    "TerminalTool",
    "Text",
    "TextFilter",
    "TextModel",
    "TimeoutAction",
    "ToolContext",
    "ToolOutcome",
    "TraceConsumer",
    "TurnLimitReached",
    "UnixSignal",
    "WarmPool",
    "Window",
    "WorkspaceFiles",
    "__version__",
    "check_command",
    "clip_text",
    "parse_event",
    "render_text",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used (PEP 562)."""
    module = _HOMES.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
