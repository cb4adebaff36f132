"""How an event reaches a consumer: the one way for all who deliver."""

from aeolus_sandbox.events import StreamConsumer, StreamEvent


async def deliver(consumer: StreamConsumer, event: StreamEvent) -> None:
    """Give an event to a consumer, and wait until it has taken it.

    Raises:
        Exception: Whatever the consumer raises.
    """
    waiting = consumer.on_event(event)
    if waiting is not None:
        await waiting


async def close(consumer: StreamConsumer) -> None:
    """Close a consumer that has an `aclose`; others need none."""
    aclose = getattr(consumer, "aclose", None)
    if aclose is not None:
        await aclose()
