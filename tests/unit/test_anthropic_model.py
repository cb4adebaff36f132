"""The real client against a local service: what it answers, and everything that goes wrong on the way."""

import asyncio
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from aeolus_sandbox.errors import ConfigurationError, ModelError, ModelUnavailable
from aeolus_sandbox.model.anthropic import AnthropicModels
from aeolus_sandbox.model.anthropic_errors import _retry_after_s
from aeolus_sandbox.model.spec import ModelSpec
from aeolus_sandbox.testing.messages_server import (
    CUT_BEFORE,
    CUT_INSIDE,
    NEVER,
    MessagesServer,
    Reply,
    fails,
    says,
)

KEY = "sk-ant-very-secret-0123456789"
NAME = "anthropic/claude-haiku-4-5"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@asynccontextmanager
async def _models(server: MessagesServer, **options: Any) -> AsyncIterator[AnthropicModels]:
    defaults: dict[str, Any] = {"base_url": server.url, "api_key": SecretStr(KEY), "longest_wait_s": 0.01}
    models = AnthropicModels(**(defaults | options))
    try:
        async with asyncio.timeout(60):
            yield models
    finally:
        await models.aclose()


async def _ask(models: AnthropicModels) -> str:
    return await models.text_model(NAME).complete(system="rules", prompt="question", max_tokens=7)


async def _failure(models: AnthropicModels) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await _ask(models)
    return raised.value


async def test_an_answer_is_the_text_of_all_its_parts() -> None:
    async with MessagesServer(says("one ", "two")) as server, _models(server) as models:
        assert await _ask(models) == "one two"
    (request,) = server.requests
    assert request.path == "/v1/messages"
    assert (request.body["model"], request.body["system"]) == ("claude-haiku-4-5", "rules")
    assert (request.body["messages"], request.body["max_tokens"]) == (
        [{"role": "user", "content": "question"}],
        7,
    )
    assert KEY in "".join(request.headers.values())


@pytest.mark.parametrize(
    "trouble",
    [
        fails(429, "rate_limit_error", retry_after="0"),
        fails(529, "overloaded_error"),
        fails(500),
        fails(503),
        fails(408),
        Reply(502, b"<html>bad gateway {", {"content-type": "text/html"}),
        Reply(500, b"{not json"),
        CUT_BEFORE,
        CUT_INSIDE,
    ],
    ids=repr,
)
async def test_what_may_succeed_later_is_asked_again(trouble: Reply) -> None:
    async with MessagesServer(trouble, trouble, says("fine")) as server, _models(server) as models:
        assert await _ask(models) == "fine"
        assert len(server.requests) == 3


@pytest.mark.parametrize("trouble", [fails(529), CUT_BEFORE, CUT_INSIDE], ids=repr)
async def test_what_never_succeeds_is_asked_as_often_as_configured(trouble: Reply) -> None:
    async with MessagesServer(trouble) as server, _models(server, attempts=2) as models:
        error = await _failure(models)
        assert isinstance(error, ModelUnavailable)
        assert error.retryable
        assert error.__cause__ is not None
        assert len(server.requests) == 2


async def test_the_time_that_the_service_asks_for_is_kept_with_the_error() -> None:
    trouble = fails(429, "rate_limit_error", "slow down", retry_after="17")
    async with MessagesServer(trouble) as server, _models(server, attempts=1) as models:
        error = await _failure(models)
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after_s == 17
    assert "slow down" in str(error)
    assert "429" in str(error)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("0.5", 0.5), (None, None), ("-1", None), ("nan", None), ("inf", None), ("soon", None)],
)
def test_only_a_number_of_seconds_is_a_time_to_wait(header: str | None, seconds: float | None) -> None:
    assert _retry_after_s(header) == seconds


async def test_a_request_that_is_never_answered_is_given_up_in_time_and_repeated() -> None:
    async with MessagesServer(NEVER, says("fine")) as server, _models(server, timeout_s=3) as models:
        assert await _ask(models) == "fine"
        assert len(server.requests) == 2


async def test_a_service_that_never_answers_is_given_up_for_good_after_twice_the_time_of_one_request() -> (
    None
):
    async with MessagesServer(NEVER) as server, _models(server, timeout_s=0.3, attempts=100) as models:
        error = await _failure(models)
        assert isinstance(error, ModelUnavailable)
        assert "within 0.6 s" in str(error)
        assert len(server.requests) <= 2


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    async with MessagesServer() as server:
        url = server.url
    models = AnthropicModels(base_url=url, api_key=SecretStr(KEY), attempts=2, longest_wait_s=0.01)
    async with asyncio.timeout(60):
        error = await _failure(models)
        await models.aclose()
    assert isinstance(error, ModelUnavailable)
    assert "network" in str(error)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "malformed"),
        (401, "ANTHROPIC_API_KEY"),
        (403, "permissions"),
        (404, "base URL"),
        (413, "too large"),
        (422, "processed"),
        (418, "teapot"),
    ],
)
async def test_a_refused_request_is_not_repeated_and_says_what_to_do(status: int, advice: str) -> None:
    trouble = fails(status, "some_error", "I am a teapot")
    async with MessagesServer(trouble) as server, _models(server) as models:
        error = await _failure(models)
        assert type(error) is ModelError
        assert not error.retryable
        assert advice in str(error)
        assert str(status) in str(error)
        assert error.__cause__ is not None
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says(), "no text"),
        (says(" \n"), "no text"),
        (says("I would rather", stop_reason="refusal"), "refused to answer"),
        (says(content=None), "no text"),
        (says(content=[{"type": "thinking"}, 7, {"type": "text", "text": 7}]), "no text"),
        (Reply(body=b"[1, 2]"), "no text"),
        (Reply(body=b"{garbage"), "base URL"),
        (Reply(body=b"\xff\xfe\xfd"), "base URL"),
        (Reply(body=b"<html>welcome", headers={"content-type": "text/html"}), "no text"),
    ],
    ids=repr,
)
async def test_an_answer_that_cannot_be_used_is_an_error_and_is_not_repeated(
    answer: Reply, reason: str
) -> None:
    async with MessagesServer(answer) as server, _models(server) as models:
        error = await _failure(models)
        assert type(error) is ModelError
        assert reason in str(error)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 500])
async def test_the_key_is_never_shown_although_the_service_quotes_it(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    trouble = fails(status, "authentication_error", f"the key {KEY!r} is not known")
    async with MessagesServer(trouble) as server, _models(server, attempts=2) as models:
        error = await _failure(models)
        logging.getLogger().warning("failed: %r", error, exc_info=error)
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(models) + repr(vars(models))
        shown += repr(models.text_model(NAME))
    assert "[key]" in shown
    assert KEY not in shown
    assert KEY not in caplog.text


@pytest.mark.parametrize("key", ["sk ant", "sk-\nant", "sk-é", "sk-'x'"])
def test_a_key_that_no_header_can_hold_is_found_at_once_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="key") as raised:
        AnthropicModels(api_key=SecretStr(key)).text_model(NAME)
    assert key not in str(raised.value)


def test_without_a_key_nothing_starts() -> None:
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicModels().text_model(NAME)
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicModels(api_key=SecretStr(" \n")).text_model(NAME)


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
async def test_the_environment_gives_the_key_and_the_address(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MessagesServer() as server:
        monkeypatch.setenv(variable, f"{KEY}\n")  # as a file that was read into a variable ends
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        async with _models(server, base_url=None, api_key=None) as models:
            assert await _ask(models) == "a summary"
        assert KEY in "".join(server.requests[0].headers.values())


@pytest.mark.parametrize("url", ["localhost:1", "ftp://x.example", "https://", "http:// x"])
def test_a_base_url_that_is_none_is_found_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="base URL"):
        AnthropicModels(base_url=url, api_key=SecretStr(KEY)).text_model(NAME)


def test_a_client_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    with pytest.raises(ConfigurationError, match=r"aeolus-sandbox\[agent\]"):
        AnthropicModels(api_key=SecretStr(KEY)).text_model(NAME)


def test_the_client_is_not_imported_before_it_is_used() -> None:
    code = (
        "import sys; from pydantic import SecretStr; from aeolus_sandbox.model.anthropic import AnthropicModels; "
        f"AnthropicModels(api_key=SecretStr('x')).text_model({NAME!r}); print('anthropic' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "False"


async def test_the_connection_is_used_again_and_a_closed_one_is_replaced() -> None:
    async with MessagesServer() as server, _models(server) as models:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(_ask(models))
        client = models._client
        assert client is not None
        await _ask(models)
        assert models._client is client
        await models.aclose()
        assert client.is_closed()
        assert await _ask(models) == "a summary"
        assert models._client is not client


async def test_an_answer_that_is_not_waited_for_any_more_ends() -> None:
    async with MessagesServer(NEVER) as server, _models(server) as models:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(models))
            await server.asked.wait()
            asking.cancel()
        assert asking.cancelled()
        assert len(server.requests) == 1


def test_a_model_is_named_by_its_provider_and_name() -> None:
    assert ModelSpec.parse(NAME) == ModelSpec("anthropic", "claude-haiku-4-5")


@pytest.mark.parametrize(
    "name", ["", "claude-haiku-4-5", "anthropic/", "anthropic/a b", "anthropic/a/b", "/x"]
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"provider/name|not known"):
        ModelSpec.parse(name)


def test_an_unknown_provider_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigurationError, match="known is 'anthropic'"):
        ModelSpec.parse("acme/model")
