"""What a summary asks of a language model."""

from typing import Protocol


class TextModel(Protocol):
    """A language model that answers one text with another."""

    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        """Return the model's answer; retries what is retryable, and ends within its own time limit.

        Raises:
            ModelUnavailable: It was overloaded, limited the rate or could not be reached, also after retries.
            ModelError: It refused the request.
        """
        ...
