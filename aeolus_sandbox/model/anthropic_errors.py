"""What goes wrong with Anthropic's service, as our errors; nothing of it holds the key.

Statuses and types of errors: https://docs.anthropic.com/en/api/errors.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from aeolus_sandbox.errors import ModelError, ModelUnavailable
from aeolus_sandbox.model.spec import ModelSpec

if TYPE_CHECKING:
    from anthropic import APIStatusError

_REASON_CHARACTERS: Final = 500
_TIMED_OUT: Final = 408
_RATE_LIMITED: Final = 429
_FIRST_REFUSAL: Final = 400
_SERVER_ERROR: Final = 500
_STATUS_OF_TYPE: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": _RATE_LIMITED,
    "api_error": _SERVER_ERROR,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""An error in the middle of a stream comes with status 200; its type tells which it would have had."""
_ADVICE: Final = {
    400: "the request is malformed or too long for the model",
    401: "check the key in ANTHROPIC_API_KEY",
    402: "check the billing of the account",
    403: "the key may not use this model: check its permissions",
    404: "check the model's name and the base URL",
    413: "the request is too large: lower what is sent at once",
    422: "the request is well-formed, but cannot be processed",
}


@contextmanager
def mapped_errors(spec: ModelSpec, credential: str) -> Iterator[None]:
    """Map what goes wrong in one request, or while its answer is read, to our errors.

    Raises:
        ModelUnavailable: It may succeed later.
        ModelError: It will not.
    """
    import anthropic
    import httpx2

    try:
        yield
    except anthropic.APIStatusError as error:
        refusal = _refusal(spec, error, credential)
        _forget(credential, error)
        raise refusal from error
    except (anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError) as error:
        _forget(credential, error)
        msg = f"the model {spec.name!r} did not answer in time: try later"
        raise ModelUnavailable(msg) from error
    except (anthropic.APIConnectionError, httpx2.TransportError) as error:
        _forget(credential, error)
        msg = f"the service of the model {spec.name!r} cannot be reached, or cut the connection: check the network"
        raise ModelUnavailable(msg) from error
    except (anthropic.AnthropicError, httpx2.HTTPError, json.JSONDecodeError, UnicodeDecodeError) as error:
        _forget(credential, error)
        raise not_the_service(spec) from error


def not_the_service(spec: ModelSpec) -> ModelError:
    """Return the error for an answer that is not one of Anthropic's service."""
    return ModelError(
        f"what answers for the model {spec.name!r} is not Anthropic's service: check the base URL"
    )


def _refusal(spec: ModelSpec, error: "APIStatusError", credential: str) -> ModelError:
    status = _status(error)
    reason = _without(credential, str(error))[:_REASON_CHARACTERS]
    if status in {_TIMED_OUT, _RATE_LIMITED} or status >= _SERVER_ERROR:
        unavailable = ModelUnavailable(
            f"the model {spec.name!r} is not available now: {reason} (status {status})"
        )
        unavailable.retry_after_s = _retry_after_s(error.response.headers.get("retry-after"))
        return unavailable
    advice = _ADVICE.get(status, "see what the service says")
    return ModelError(f"the model {spec.name!r} refused the request: {advice}: {reason} (status {status})")


def _status(error: "APIStatusError") -> int:
    """Return the status; within a stream, that of the error's type. One without a type says that something broke."""
    if error.status_code >= _FIRST_REFUSAL:
        return error.status_code
    kind: object = error.type
    if not isinstance(kind, str):
        return _SERVER_ERROR
    return _STATUS_OF_TYPE.get(kind, _FIRST_REFUSAL)


def _forget(credential: str, error: BaseException | None) -> None:
    """Take the key, and all that may hold it, out of an error of the client and of what caused it.

    Boundary: a service may quote the key that it refuses, and the request that an error holds was sent with it. A
    traceback shows causes too, and programs that collect errors show what they hold: only their messages stay.
    """
    import anthropic
    import httpx2

    while error is not None:
        if isinstance(error, anthropic.AnthropicError | httpx2.HTTPError):
            error.args = tuple(_without(credential, str(argument)) for argument in error.args)
            vars(error).clear()
        error = error.__cause__ or error.__context__


def _without(credential: str, text: str) -> str:
    return text.replace(credential, "[key]")


def _retry_after_s(header: str | None) -> float | None:
    """Return the seconds that a service asks to wait; a date (RFC 9110 has both) is not what this service sends."""
    return float(header) if header is not None and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", header) else None
