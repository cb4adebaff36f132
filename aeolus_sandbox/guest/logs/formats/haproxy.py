"""What HAProxy writes of each request: its HTTP and TCP log formats (HAProxy's configuration manual, chapter 8.2)."""

import re
from typing import Any, Final

_PROXIED: Final = re.compile(
    r"(?P<client>[\w.:%-]{1,128}):(?P<port>\d{1,5}) \[(?P<accepted>[^\]]{1,64})\] "
    r"(?P<frontend>\S{1,128}) (?P<backend>[^\s/]{1,128})/(?P<server>\S{1,128}) "
    r"(?P<times>[+-]?\d{1,12}(?:/[+-]?\d{1,12}){2,4}) "
    r"(?:(?P<status>-1|\d{3}) )?(?P<bytes>\+?\d{1,19}) "
    r"(?:(?P<request_cookie>[^\s/]{1,256}) (?P<response_cookie>[^\s/]{1,256}) )?"
    r"(?P<termination>[\w-]{2,4}) (?P<connections>\d{1,9}(?:/\+?\d{1,9}){4}) (?P<queues>\d{1,9}/\d{1,9})"
)
_HEADERS: Final = re.compile(r' (?:(\{[^{}]*\}) )?(?:(\{[^{}]*\}) )?"')
_REQUEST: Final = re.compile(r"([A-Z]{1,32}) (\S+)(?: (HTTP/\d(?:\.\d)?))?$")

_HTTP_TIMES: Final = ("request", "queue", "connect", "response", "total")
_TCP_TIMES: Final = ("queue", "connect", "total")


def proxy_fields(message: str) -> dict[str, Any] | None:
    """Return the fields of a message of HAProxy about a request or connection, or None where it is another message.

    The times are milliseconds, None for what was not reached.
    """
    found = _PROXIED.match(message)
    if not found:
        return None
    fields: dict[str, Any] = {
        name: value for name, value in found.groupdict().items() if value not in (None, "-")
    }
    fields["port"] = int(fields["port"])
    fields["bytes"] = int(fields["bytes"])
    fields["times"] = _named_times(fields["times"])
    if "status" in fields:
        fields["status"] = int(fields["status"])
    return fields | _request_fields(message, found.end())


def _named_times(times: str) -> dict[str, int | None]:
    values = [int(value) for value in times.split("/")]
    names = _HTTP_TIMES if len(values) == len(_HTTP_TIMES) else _TCP_TIMES
    return {name: None if value < 0 else value for name, value in zip(names, values, strict=False)}


def _request_fields(message: str, position: int) -> dict[str, Any]:
    headers = _HEADERS.match(message, position)
    if not headers:
        return {}
    fields: dict[str, Any] = {
        name: value
        for name, value in zip(("request_headers", "response_headers"), headers.groups(), strict=True)
        if value
    }
    request = message[headers.end() :].removesuffix('"')
    fields["request"] = request
    if parts := _REQUEST.match(request):
        fields |= {"method": parts[1], "path": parts[2], "protocol": parts[3]}
    return fields
