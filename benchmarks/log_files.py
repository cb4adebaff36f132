"""Log files to measure with: of a given size, every line another one, the same in every run."""

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

_BLOCK_LINES: Final = 20_000
_START: Final = datetime(2024, 3, 10, 9, 15, 2, tzinfo=UTC)
_LEVELS: Final = (20,) * 40 + (30,) * 140 + (40,) * 12 + (50,) * 7 + (60,)
"""One line in 25 is an error or worse."""
_STATUSES: Final = (200,) * 90 + (304,) * 4 + (404,) * 4 + (500,) * 2


def write_json(path: Path, size_bytes: int) -> None:
    """Write what a service with pino writes: about 250 bytes a line, nested."""
    _write(path, size_bytes, _json_line)


def write_combined(path: Path, size_bytes: int) -> None:
    """Write what a web server writes in the Combined Log Format: about 210 bytes a line."""
    _write(path, size_bytes, _combined_line)


def _json_line(number: int, chance: random.Random) -> str:
    return (
        f'{{"level":{chance.choice(_LEVELS)},"time":{1710062102120 + number * 7},"pid":4711,"hostname":"gw-1.example.net",'
        f'"reqId":"req-{number:x}","req":{{"method":"GET","url":"/api/v1/items/{number % 9999}?page={number % 7}",'
        f'"remoteAddress":"192.0.2.{number % 250}"}},"res":{{"statusCode":{chance.choice(_STATUSES)}}},'
        f'"responseTime":{chance.randrange(300_000) / 1000},"msg":"request completed"}}\n'
    )


def _combined_line(number: int, chance: random.Random) -> str:
    moment = _START + timedelta(milliseconds=number * 7)
    return (
        f"192.0.2.{number % 250} - - [{moment:%d/%b/%Y:%H:%M:%S +0000}] "
        f'"GET /api/v1/items/{number % 9999}?page={number % 7} HTTP/1.1" {chance.choice(_STATUSES)} '
        f'{chance.randrange(90_000)} "https://www.example.net/start?from={number % 31}" '
        f'"Mozilla/5.0 (X11; Linux x86_64; rv:{100 + number % 40}.0) Gecko/20100101 Firefox/{100 + number % 40}.0"\n'
    )


def _write(path: Path, size_bytes: int, line: Callable[[int, random.Random], str]) -> None:
    written = 0
    with path.open("w", encoding="ascii", newline="\n") as file:
        for block in _blocks(line):
            file.write(block)
            written += len(block)
            if written >= size_bytes:
                return


def _blocks(line: Callable[[int, random.Random], str]) -> Iterator[str]:
    chance = random.Random(7)  # the same file every time
    first = 0
    while True:
        yield "".join(line(number, chance) for number in range(first, first + _BLOCK_LINES))
        first += _BLOCK_LINES
