"""What several unit tests start: the kernel host as a local process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.guest_process import Guest


@pytest.fixture
def booting(tmp_path: Path) -> Iterator[Guest]:
    guest = Guest(tmp_path)
    try:
        yield guest
        guest.end()  # in order, so that it leaves nothing behind
    finally:
        guest.close()


@pytest.fixture
def guest(booting: Guest) -> Guest:
    booting.ready()
    return booting
