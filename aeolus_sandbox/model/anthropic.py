"""Anthropic's language models: the one door to the `anthropic` client, which is imported when it is first used."""

import asyncio
import importlib.util
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from aeolus_sandbox.errors import ConfigurationError, ModelError, ModelUnavailable
from aeolus_sandbox.model.spec import ModelSpec
from aeolus_sandbox.retrying import ATTEMPTS, retry_while_retryable

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic

TIMEOUT_S: Final = 60.0
LONGEST_WAIT_S: Final = 20.0
_FIRST_WAIT_S: Final = 1.0
_KEY: Final = re.compile(r"[!#-&(-\[\]-~]+")
"""What can stand in a header, and reads the same where it is quoted: so that it is found and taken out there."""
_REASON_CHARACTERS: Final = 500
_TIMED_OUT: Final = 408
_RATE_LIMITED: Final = 429
_SERVER_ERROR: Final = 500
_ADVICE: Final = {
    400: "the request is malformed or too long for the model",
    401: "check the key in ANTHROPIC_API_KEY",
    402: "check the billing of the account",
    403: "the key may not use this model: check its permissions",
    404: "check the model's name and the base URL",
    413: "the request is too large: lower what is sent at once",
    422: "the request is well-formed, but cannot be processed",
}


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
        spec = ModelSpec.parse(name)
        if importlib.util.find_spec("anthropic") is None:
            msg = f"the model {name!r} needs the anthropic client: install it with pip install aeolus-sandbox[agent]"
            raise ConfigurationError(msg)
        self._credential()
        self._checked_base_url()
        return AnthropicModel(self, spec)

    async def complete(self, spec: ModelSpec, *, system: str, prompt: str, max_tokens: int) -> str:
        """Return a model's answer; see `TextModel.complete`."""
        client = await self._connected()

        async def ask() -> str:
            with _mapped_errors(spec, self._credential()[1]):
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

    async def _connected(self) -> "AsyncAnthropic":
        async with self._connecting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._connect)
            return self._client

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


@contextmanager
def _mapped_errors(spec: ModelSpec, credential: str) -> Iterator[None]:
    """Map what goes wrong in one request to our errors.

    Raises:
        ModelUnavailable: It may succeed later.
        ModelError: It will not.
    """
    import anthropic

    try:
        yield
    except anthropic.APIStatusError as error:
        # Boundary: a service may quote the key that it refuses. A traceback shows the cause too.
        error.args = tuple(_without(credential, str(argument)) for argument in error.args)
        raise _refusal(spec, error) from error
    except (anthropic.APITimeoutError, TimeoutError) as error:
        msg = f"the model {spec.name!r} did not answer in time: try later"
        raise ModelUnavailable(msg) from error
    except anthropic.APIConnectionError as error:
        msg = f"the service of the model {spec.name!r} cannot be reached, or cut the connection: check the network"
        raise ModelUnavailable(msg) from error
    except (anthropic.AnthropicError, json.JSONDecodeError, UnicodeDecodeError) as error:
        msg = f"what answers for the model {spec.name!r} is not Anthropic's service: check the base URL"
        raise ModelError(msg) from error


def _refusal(spec: ModelSpec, error: "APIStatusError") -> ModelError:
    status = error.status_code
    reason = str(error)[:_REASON_CHARACTERS]
    if status in {_TIMED_OUT, _RATE_LIMITED} or status >= _SERVER_ERROR:
        unavailable = ModelUnavailable(
            f"the model {spec.name!r} is not available now: {reason} (status {status})"
        )
        unavailable.retry_after_s = _retry_after_s(error.response.headers.get("retry-after"))
        return unavailable
    advice = _ADVICE.get(status, "see what the service says")
    return ModelError(f"the model {spec.name!r} refused the request: {advice}: {reason} (status {status})")


def _without(credential: str, text: str) -> str:
    return text.replace(credential, "[key]")


def _retry_after_s(header: str | None) -> float | None:
    """Return the seconds that a service asks to wait; a date (RFC 9110 has both) is not what this service sends."""
    return float(header) if header is not None and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", header) else None


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
