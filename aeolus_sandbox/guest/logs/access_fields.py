"""The fields of an access line, read out of the line itself: by the guest, or by the host where somebody looks.

Most readers of an access log look at few lines' fields, and to send them costs more than the line.
"""

import re
from typing import Any, Final

STATUSES: Final = {f"{status:03}": status for status in range(1000)}
_MOST_DIGITS: Final = 20

# A quote without its end takes the rest of the line: were it no match, each quote in it would be tried anew.
_QUOTED: Final = re.compile(r'"([^"\\]*+(?:\\.?[^"\\]*+)*+)("?)', re.DOTALL)
_ESCAPED: Final = re.compile(r'\\(["\\])')
_VIRTUAL_HOST: Final = re.compile(r"[^\s:]+:[0-9]{1,5}")


def access_fields(line: str, *, combined: bool | None) -> dict[str, Any] | None:
    r"""Return the fields of an access line: `host ident user [time] "request" status bytes`, and what follows.

    The fields are host, ident, user, time, request, method, path, protocol, status, bytes, and in Combined referer and
    user_agent; vhost where the line begins with `name:port`; extra (a list of texts) where it goes on.
    A `-`, which is how servers write that there is none, is None. Of escapes only `\"` and `\\` are undone: what else
    a server has escaped (`\x16`) stands for bytes, and stays as it is. A request that is not one of HTTP is kept, and
    its method, path and protocol are None.

    Args:
        line: The line; takes time in proportion to its length.
        combined: Read Combined (True), Common (False: what follows it is extra), or whichever the line is (None).

    Returns:
        The fields, or None when it is no access line.
    """
    is_plain = "\\" not in line or ('\\"' not in line and "\\\\" not in line)
    pieces = line.split('"') if is_plain else _escaped_pieces(line)
    if len(pieces) < 3 or len(pieces) % 2 == 0:
        return None
    client, _, stamp = pieces[0].partition(" [")
    numbers = pieces[2].split()
    fields = _client(client)
    if len(numbers) < 2 or not stamp.endswith("] ") or fields is None:
        return None
    status, size = STATUSES.get(numbers[0]), numbers[1]
    if status is None or not is_size(size):
        return None
    fields["time"] = stamp[:-2]
    request = pieces[1]
    fields["request"] = request if request != "-" else None
    fields["method"], fields["path"], fields["protocol"] = _request(request)
    fields["status"] = status
    fields["bytes"] = int(size) if size != "-" else None
    following = 2
    if combined is not False and len(pieces) > 6 and not pieces[4].strip():
        fields["referer"], fields["user_agent"] = (
            text if text != "-" else None for text in (pieces[3], pieces[5])
        )
        following = 6
    elif combined:
        return None
    if len(numbers) > 2 or len(pieces) > following + 1 or (following == 6 and pieces[6]):
        fields["extra"] = _extra(numbers[2:], pieces, following)
    return fields


def is_size(text: str) -> bool:
    """Return whether a text is how a server writes a count of bytes."""
    return text == "-" or (text.isdecimal() and len(text) <= _MOST_DIGITS)


def _request(request: str) -> tuple[str | None, str | None, str | None]:
    words = request.split(" ")
    if len(words) == 3 and words[1] and words[2].startswith("HTTP/") and words[0].isupper():
        return words[0], words[1], words[2]
    return _odd_request(request)


def _extra(extra: list[str], pieces: list[str], following: int) -> list[str]:
    """Return the values after those of the format: the words outside of quotes, and what is between quotes."""
    if following > 2:
        extra += pieces[following].split()
    for index in range(following + 1, len(pieces), 2):
        extra.append(pieces[index])
        extra += pieces[index + 1].split()
    return extra


def _escaped_pieces(line: str) -> list[str]:
    """Return what is between quotes (at odd places) and around them; nothing when a quote has no end."""
    begin = line.find('] "') + 2  # what is before the request is not quoted
    found = _QUOTED.split(line[begin:])
    if begin < 2 or len(found) < 3 or not found[-2]:
        return []
    del found[2::3]  # the closing quotes
    found[1::2] = [_ESCAPED.sub(r"\1", value) if "\\" in value else value for value in found[1::2]]
    found[0] = line[:begin]
    return found


def _client(text: str) -> dict[str, Any] | None:
    """Return the fields of what is before the time; None when it is something else."""
    words = text.split(" ")
    fields: dict[str, Any] = {}
    if len(words) > 3:
        if _VIRTUAL_HOST.fullmatch(words[0]) is not None:
            fields["vhost"] = words.pop(0)
        words = _three(words)
    if len(words) != 3 or not words[0]:
        return None
    host, ident, user = words
    fields["host"] = host
    fields["ident"] = ident if ident != "-" else None
    fields["user"] = user if user != "-" else None
    return fields


def _three(words: list[str]) -> list[str]:
    """Return host, ident and user where the host is a list of hosts, or the user's name has spaces."""
    hosts = 1
    while hosts < len(words) and words[hosts - 1].endswith(","):
        hosts += 1
    if len(words) < hosts + 2:
        return words
    return [" ".join(words[:hosts]), words[hosts], " ".join(words[hosts + 1 :])]


def _odd_request(request: str) -> tuple[str | None, str | None, str | None]:
    """Return method, path and protocol where the path has spaces, or the protocol (HTTP/0.9) is not said.

    All are None when it is no request.
    """
    method, _, rest = request.partition(" ")
    if not method.isupper():
        return None, None, None
    path, _, protocol = rest.rpartition(" ")
    if path and protocol.startswith("HTTP/"):
        return method, path, protocol
    return (method, rest, None) if rest.startswith("/") and not path else (None, None, None)
