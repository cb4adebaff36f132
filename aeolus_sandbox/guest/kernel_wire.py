"""The messages of a small kernel: packed, signed, and read; see `small_kernel`."""

import hmac
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

    def __init__(self, key: str) -> None:
        self._key = key.encode()
        self._session = secrets.token_hex(16)
        self._count = 0

    def pack(self, kind: str, content: Json, request: Request, identities: Sequence[bytes]) -> list[bytes]:
        """Return the parts of a message that answers a request."""
        self._count += 1
        header = {
            "msg_id": f"{self._session}_{self._count}",
            "msg_type": kind,
            "session": self._session,
            "username": "kernel",
            "date": datetime.now(UTC).isoformat(),
            "version": "5.3",
        }
        parts = [msgspec.json.encode(part) for part in (header, request.header, {}, content)]
        return [*identities, _DELIMITER, self._signature(parts), *parts]

    def unpack(self, parts: list[bytes]) -> Request | None:
        """Return the request that a message holds; None when it is not one, or not signed by our client."""
        with suppress(ValueError, msgspec.DecodeError):
            start = parts.index(_DELIMITER)
            signature, *body = parts[start + 1 :]
            if len(body) >= 4 and hmac.compare_digest(signature, self._signature(body[:4])):
                header, content = msgspec.json.decode(body[0]), msgspec.json.decode(body[3])
                return Request(parts[:start], header, content)
        return None

    def _signature(self, parts: list[bytes]) -> bytes:
        return hmac.digest(self._key, b"".join(parts), "sha256").hex().encode()
