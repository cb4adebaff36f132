"""Anthropic's language models: the one door to the `anthropic` client, which is imported when it is first used."""

import asyncio
import importlib.util
import os
import re
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from aeolus_sandbox.errors import ConfigurationError, ModelError, ModelUnavailable
from aeolus_sandbox.model.anthropic_chat import SILENCE_S, AnthropicChat
from aeolus_sandbox.model.anthropic_errors import mapped_errors
from aeolus_sandbox.model.spec import ModelSpec
from aeolus_sandbox.retrying import ATTEMPTS, retry_while_retryable

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

TIMEOUT_S: Final = 60.0
LONGEST_WAIT_S: Final = 20.0
_FIRST_WAIT_S: Final = 1.0
_KEY: Final = re.compile(r"[!#-&(-\[\]-~]+")
"""What can stand in a header, and reads the same where it is quoted: so that it is found and taken out there."""


class AnthropicModels:
    """Gives Anthropic's models by their names; all of them share one client, which is made when it is first used."""

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: SecretStr | None = None,
        timeout_s: float = TIMEOUT_S,
        attempts: int = ATTEMPTS,
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        """Configure the access.

        Args:
            base_url: Where the service is; None: ANTHROPIC_BASE_URL, else the public one.
            api_key: The key; None: ANTHROPIC_API_KEY, else the token in ANTHROPIC_AUTH_TOKEN.
            timeout_s: How long one request may take, in seconds; an answer with all its retries may take twice that.
            attempts: How many requests an answer may take.
            longest_wait_s: The most that is waited between two of them, in seconds.
        """
        self._base_url = base_url
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._longest_wait_s = longest_wait_s
        self._client: AsyncAnthropic | None = None
        self._connecting = asyncio.Lock()

    def text_model(self, name: str) -> "AnthropicModel":
        """Return the model of a name such as `anthropic/claude-haiku-4-5`; nothing is sent yet.

        Raises:
            ConfigurationError: The name, the key or the base URL is wrong or missing, or the client is not installed.
        """
        return AnthropicModel(self, self._checked(name))

    def chat_model(self, name: str, *, silence_s: float = SILENCE_S) -> AnthropicChat:
        """Return the model of a name for a conversation with tools; nothing is sent yet.

        Args:
            name: Such as `anthropic/claude-sonnet-4-5`.
            silence_s: How long its service may send nothing before the answer counts as broken off, in seconds; the
                whole answer may take any time.

        Raises:
            ConfigurationError: The name, the key or the base URL is wrong or missing, or the client is not installed.
        """
        return AnthropicChat(self, self._checked(name), silence_s=silence_s)

    def _checked(self, name: str) -> ModelSpec:
        spec = ModelSpec.parse(name)
        if importlib.util.find_spec("anthropic") is None:
            msg = f"the model {name!r} needs the anthropic client: install it with pip install aeolus-sandbox[agent]"
            raise ConfigurationError(msg)
        self._credential()
        self._checked_base_url()
        return spec

    async def complete(self, spec: ModelSpec, *, system: str, prompt: str, max_tokens: int) -> str:
        """Return a model's answer; see `TextModel.complete`."""
        client = await self.connected()

        async def ask() -> str:
            with self.mapped_errors(spec):
                async with asyncio.timeout(self._timeout_s):
                    message = await client.messages.create(
                        model=spec.name,
                        system=system,
                        messages=[{"role": "user", "content": prompt}],
                        max_tokens=max_tokens,
                    )
            return _answer(spec, message)

        try:
            async with asyncio.timeout(2 * self._timeout_s):
                return await retry_while_retryable(
                    ask,
                    attempts=self._attempts,
                    first_wait_s=_FIRST_WAIT_S,
                    longest_wait_s=self._longest_wait_s,
                )
        except TimeoutError as error:
            msg = f"the model {spec.name!r} did not answer within {2 * self._timeout_s:g} s, with retries: try later"
            raise ModelUnavailable(msg) from error

    async def aclose(self) -> None:
        """Close the connections; a model that is asked later opens new ones."""
        async with self._connecting:
            client, self._client = self._client, None
            if client is not None:
                await client.close()

    async def connected(self) -> "AsyncAnthropic":
        """Return the client that all models share.

        Raises:
            ConfigurationError: The key or the base URL is wrong or missing.
        """
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)
            return self._client

    def mapped_errors(self, spec: ModelSpec) -> AbstractContextManager[None]:
        """Map what goes wrong with the client inside of it to our errors, without the key.

        Raises:
            ModelUnavailable: It may succeed later.
            ModelError: It will not.
        """
        return mapped_errors(spec, self._credential()[1])

    def _connect(self) -> "AsyncAnthropic":
        """Make the client; in a thread, because importing it and reading the certificates takes a while."""
        from anthropic import AsyncAnthropic

        kind, credential = self._credential()
        client = AsyncAnthropic(
            api_key=credential if kind == "api_key" else None,
            auth_token=credential if kind == "auth_token" else None,
            base_url=self._checked_base_url(),
            timeout=self._timeout_s,
            max_retries=0,  # retrying is ours
        )
        _ = client.messages  # imported when it is first used
        return client

    def _credential(self) -> tuple[str, str]:
        """Return what is sent to prove who we are, and as what.

        Everything else that the client could find by itself (profiles on the disk) is left alone.
        """
        if self._api_key is not None:
            found = ("api_key", self._api_key.get_secret_value())
        elif key := os.environ.get("ANTHROPIC_API_KEY"):
            found = ("api_key", key)
        else:
            found = ("auth_token", os.environ.get("ANTHROPIC_AUTH_TOKEN", ""))
        kind, credential = found[0], found[1].strip()
        if not credential:
            msg = "there is no key for Anthropic's models: set ANTHROPIC_API_KEY, or give api_key"
            raise ConfigurationError(msg)
        if not _KEY.fullmatch(credential):
            msg = "the key for Anthropic's models has characters in it that no key has: copy it again"
            raise ConfigurationError(msg)
        return kind, credential

    def _checked_base_url(self) -> str | None:
        url = self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or None
        if url is not None and not re.match(r"https?://[^/\s]", url):
            msg = (
                f"{url!r} is no base URL for Anthropic's models: give one such as 'https://api.anthropic.com'"
            )
            raise ConfigurationError(msg)
        return url


class AnthropicModel:
    """One model: a `TextModel`."""

    def __init__(self, models: AnthropicModels, spec: ModelSpec) -> None:
        self._models = models
        self._spec = spec

    async def complete(self, *, system: str, prompt: str, max_tokens: int) -> str:
        """Return the model's answer; see `TextModel.complete`."""
        return await self._models.complete(self._spec, system=system, prompt=prompt, max_tokens=max_tokens)


def _answer(spec: ModelSpec, message: Any) -> str:
    """Return the text of an answer, which the client does not check.

    Raises:
        ModelError: There is none, or the model refused.
    """
    if getattr(message, "stop_reason", None) == "refusal":
        msg = f"the model {spec.name!r} refused to answer: change what is asked"
        raise ModelError(msg)
    blocks = getattr(message, "content", None)
    texts = [getattr(block, "text", None) for block in blocks] if isinstance(blocks, list) else []
    answer = "".join(text for text in texts if isinstance(text, str))
    if not answer.strip():
        msg = f"the answer of the model {spec.name!r} has no text: check the model's name and the base URL"
        raise ModelError(msg)
    return answer
