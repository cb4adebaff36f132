"""The messages between a kernel and its client: packed, signed, and read.

It stands in for jupyter_client, on both sides: that takes longer to import than a small kernel takes to boot.
"""

import hmac
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

_DELIMITER: Final = b"<IDS|MSG>"

Json = dict[str, Any]


class Connection(msgspec.Struct):
    """What a connection file says."""

    transport: str
    ip: str
    key: str
    shell_port: int
    iopub_port: int
    stdin_port: int
    control_port: int
    hb_port: int

    def address(self, port: int) -> str:
        """Return the address of one channel."""
        return f"{self.transport}://{self.ip}{'-' if self.transport == 'ipc' else ':'}{port}"


@dataclass(frozen=True, slots=True)
class Request:
    """One message of a client."""

    identities: list[bytes]
    header: Json
    content: Json

    @property
    def kind(self) -> str:
        """The type of the message."""
        return str(self.header.get("msg_type", ""))


class Wire:
    """Signs messages, and reads those whose signature is right."""

    def __init__(self, key: str, username: str = "kernel") -> None:
        self._key = key.encode()
        self._username = username
        self._session = secrets.token_hex(16)
        self._count = 0

    def pack(self, kind: str, content: Json, request: Request, identities: Sequence[bytes]) -> list[bytes]:
        """Return the parts of a message that answers a request."""
        return [*identities, *self._signed(self._header(kind), request.header, {}, content)]

    def ask(self, kind: str, content: Json, metadata: Json | None = None) -> tuple[str, list[bytes]]:
        """Return the id and the parts of a message to a kernel."""
        header = self._header(kind)
        return header["msg_id"], self._signed(header, {}, metadata or {}, content)

    def unpack(self, parts: list[bytes]) -> Request | None:
        """Return the request that a message holds; None when it is not one, or not signed by our client."""
        with suppress(ValueError, msgspec.DecodeError):
            start = parts.index(_DELIMITER)
            signature, *body = parts[start + 1 :]
            if len(body) >= 4 and hmac.compare_digest(signature, self._signature(body[:4])):
                header, content = msgspec.json.decode(body[0]), msgspec.json.decode(body[3])
                return Request(parts[:start], header, content)
        return None

    def read(self, parts: list[bytes]) -> tuple[str, str, Any]:
        """Return the kind, the id of the parent and the content of a kernel's message.

        Raises:
            ValueError: It is not a message, or not signed by our kernel.
        """
        start = parts.index(_DELIMITER)
        signature, *body = parts[start + 1 :]
        if len(body) < 4 or not hmac.compare_digest(signature, self._signature(body[:4])):
            msg = "it is not signed"
            raise ValueError(msg)
        header, parent = _decode(body[0]), _decode(body[1])
        return str(header["msg_type"]), str(parent.get("msg_id", "")), _decode(body[3])

    def _header(self, kind: str) -> Json:
        self._count += 1
        return {
            "msg_id": f"{self._session}_{self._count}",
            "msg_type": kind,
            "session": self._session,
            "username": self._username,
            "date": datetime.now(UTC).isoformat(),
            "version": "5.3",
        }

    def _signed(self, *contents: Json) -> list[bytes]:
        parts = [msgspec.json.encode(content) for content in contents]
        return [_DELIMITER, self._signature(parts), *parts]

    def _signature(self, parts: list[bytes]) -> bytes:
        return hmac.digest(self._key, b"".join(parts), "sha256").hex().encode()


def _decode(part: bytes) -> Any:
    try:
        return msgspec.json.decode(part)
    except (
        msgspec.DecodeError
    ):  # NaN, a lone surrogate, bytes that are no UTF-8: the other one takes what it can
        return json.loads(part.decode("utf-8", "replace"))
