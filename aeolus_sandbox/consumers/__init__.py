"""What receives the events of an agent's run: the terminal, channels, callbacks, traces, and several at once."""

from aeolus_sandbox.consumers.callback import CallbackConsumer
from aeolus_sandbox.consumers.channel import ChannelConsumer, EventsDropped
from aeolus_sandbox.consumers.console import ConsoleConsumer
from aeolus_sandbox.consumers.delivery import deliver
from aeolus_sandbox.consumers.multi import MultiConsumer
from aeolus_sandbox.consumers.sqlite_trace import SqliteTraceConsumer
from aeolus_sandbox.consumers.trace import TraceConsumer

__all__ = [
    "CallbackConsumer",
    "ChannelConsumer",
    "ConsoleConsumer",
    "EventsDropped",
    "MultiConsumer",
    "SqliteTraceConsumer",
    "TraceConsumer",
    "deliver",
]
