r"""What secrets look like: the shapes of well-known tokens, and the ways in which a given value is spelled.

A pattern is a regular expression. What it matches is the secret; what stands before `\K` in it only tells that one
follows: it stays readable, and is never held back.
"""

import base64
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

_NAMES: Final = (
    r"(?:(?i:pass(?:word|wd|phrase)|secret|(?:api|access|secret|private|signing|encryption)[_-]?key"
    r"|(?:auth|access|refresh|api|bearer|session)[_-]?token)|[A-Z0-9]_TOKEN)"
)
_ASSIGNED: Final = rf"[:=]>?(?<={_NAMES}[\"']?[ \t]{{0,4}}(?::|:?=>?))"
"""The sign of an assignment: it is rare, so looking for it first and for the name behind it then is quick."""
_UNQUOTED: Final = r"(?![=$<\[{(*%])[^\s\"'`&;,<>()\[\]{}]"
_NO_CODE: Final = r"(?![,()\[\]{}])"
_ARMOURED: Final = (
    r"(?:\\[rn]|\s){0,64}+(?:[A-Z][A-Za-z-]{1,30}: [^\r\n]{0,128}\s{1,64}+){0,4}+"
    r"[A-Za-z0-9+/]{16,4096}+(?:[A-Za-z0-9+/=]{1,4096}+|\\[rn]|[\r\n]{1,4}+[ \t]{0,32}+){0,1024}+"
)
_AUTHORIZATION: Final = (
    r"(?i:authorization)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?i:bearer|basic|token)[ \t]{1,4}"
)

DEFAULT_SECRET_PATTERNS: Final = (
    # Access key ids of Amazon Web Services.
    r"(?<![A-Za-z0-9+/])A[KS]IA\K[A-Z0-9]{16}(?![A-Za-z0-9+/])",
    # Tokens of GitHub: personal, OAuth, user, server and refresh; fine-grained.
    r"(?<![A-Za-z0-9])gh[pousr]_\K[A-Za-z0-9]{36,512}",
    r"(?<![A-Za-z0-9])github_pat_\K[A-Za-z0-9_]{36,512}",
    # Personal access tokens of GitLab.
    r"(?<![A-Za-z0-9])glpat-\K[A-Za-z0-9_.-]{20,512}",
    # Tokens of Slack.
    r"(?<![A-Za-z0-9])xox[a-z]-\K[A-Za-z0-9-]{10,512}",
    # API keys of Google.
    r"(?<![A-Za-z0-9+/_-])AIza\K[A-Za-z0-9_-]{35}(?![A-Za-z0-9+/_-])",
    # API keys of OpenAI and Anthropic: a digit and a capital tell them from names, such as classes of a style sheet.
    r"(?<![A-Za-z0-9_-])sk-\K(?=[a-zA-Z_-]{0,128}[0-9])(?=[a-z0-9_-]{0,128}[A-Z])[A-Za-z0-9_-]{20,512}",
    # Live keys of Stripe: secret and restricted.
    r"(?<![A-Za-z0-9])[sr]k_live_\K[A-Za-z0-9]{16,512}",
    # Access tokens of npm.
    r"(?<![A-Za-z0-9])npm_\K[A-Za-z0-9]{36,512}",
    # API tokens of PyPI.
    r"(?<![A-Za-z0-9])pypi-\K[A-Za-z0-9_-]{50,1024}",
    # JSON web tokens (RFC 7519), signed or encrypted.
    r"(?<![A-Za-z0-9_-])eyJ\K[A-Za-z0-9_-]{10,1024}\.[A-Za-z0-9_-]{10,8192}(?:\.[A-Za-z0-9_-]{1,2048}){1,3}",
    # Private keys in PEM and PGP armour (RFC 7468, RFC 9580), also with their line breaks escaped, also cut short.
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----\K" + _ARMOURED,
    # The `Authorization` header of HTTP.
    _AUTHORIZATION + r"\K[A-Za-z0-9+/=._~-]{8,8192}",
    # The password in the address of a service.
    r"://[^\s/:@\"'<>]{0,64}:\K[^\s/@\"'<>]{1,256}(?=@)",
    # Assignments, as in JSON, settings and code: a value in quotes,
    _ASSIGNED + r"[ \t]{0,4}\"\K(?=(?:\\.|[^\"\\\r\n]){4})(?:[^\"\\\r\n]{1,4096}+|\\.){1,256}+",
    _ASSIGNED + r"[ \t]{0,4}'\K(?=(?:\\.|[^'\\\r\n]){4})(?:[^'\\\r\n]{1,4096}+|\\.){1,256}+",
    # one right after the sign, unless code goes on behind it,
    rf"{_ASSIGNED}(?<==)\K{_UNQUOTED}{{4,512}}+{_NO_CODE}",
    # and any other, where letters and digits together tell it from prose, numbers and types.
    rf"{_ASSIGNED}[ \t]{{0,4}}\K(?=[^\s\d]{{0,128}}\d)(?=[^\sA-Za-z]{{0,128}}[A-Za-z]){_UNQUOTED}{{6,512}}+{_NO_CODE}",
)
"""Shapes of well-known secrets; each is bounded, and takes time in proportion to the text."""

_SHORTEST_FOR_BASE64: Final = 8
"""Bytes of a value below which its base64 is so short that other data would contain it by chance."""


def value_patterns(value: str) -> tuple[str, ...]:
    """Return patterns for a value as it is, in JSON, percent-encoded, and as a part of something in base64.

    A line feed in the value stands for any line end.
    """
    spellings = (_plain, _in_json, _percent_encoded)
    whole = ["".join(map(spelling, value)) for spelling in spellings]
    return tuple(dict.fromkeys([*whole, *_in_base64(value.encode("utf-8", "replace"))]))


def longest_spelling(value: str) -> int:
    """Return how many characters no spelling of a value exceeds."""
    line_ends = 4 * value.count("\n")
    base64_with_line_ends = 4 * len(value.encode("utf-8", "replace"))
    return (
        max(len(json.dumps(value)), len(quote(value, safe="", errors="replace")), base64_with_line_ends)
        + line_ends
    )


def _plain(character: str) -> str:
    return r"\r?\n" if character == "\n" else re.escape(character)


def _in_json(character: str) -> str:
    """Return a character in a JSON text: what only some writers escape is found both ways."""
    if character == "\n":
        return r"(?:\\r)?\\n"
    if character < " " or character in '"\\':
        return re.escape(json.dumps(character)[1:-1])
    if character.isascii() and character.isalnum():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escape = "".join(rf"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
    return rf"(?:{re.escape(character)}|\\{re.escape(character)}|(?i:{escape}))"


def _percent_encoded(character: str) -> str:
    """Return a character in an address or a form: what only some writers encode is found both ways."""
    if character == "\n":
        return "(?i:(?:%0d)?%0a)"
    if character == "%":
        return "%25"
    if character.isascii() and character.isalnum():
        return character
    code = "".join(f"%{byte:02x}" for byte in character.encode("utf-8", "replace"))
    return rf"(?:{re.escape(character)}|(?i:{code})" + (r"|\+)" if character == " " else ")")


def _in_base64(data: bytes) -> Iterator[str]:
    """Yield the base64 of some bytes after 3n, 3n + 1 and 3n + 2 others, without what depends on neighbours."""
    if len(data) < _SHORTEST_FOR_BASE64:
        return
    for before, mixed in enumerate((0, 2, 3)):
        whole_characters = (before + len(data)) * 8 // 6
        encoded = base64.b64encode(bytes(before) + data).decode()[mixed:whole_characters]
        yield r"\s{0,2}".join(  # it is usually broken into lines
            {"+": "[+-]", "/": "[/_]"}.get(each, each) for each in encoded
        )
