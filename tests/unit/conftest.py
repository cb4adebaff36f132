"""What several unit tests start: the kernel host as a local process, and kernels of a scripted guest."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aeolus_sandbox.tools.code_interpreter.cell import Cell
from aeolus_sandbox.tools.code_interpreter.kernel import Kernel
from tests.unit.guest_process import Guest
from tests.unit.scripted_guest import ScriptedProcess, new_cell, ready_kernel


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


@pytest.fixture
async def process() -> ScriptedProcess:
    return ScriptedProcess()


@pytest.fixture
async def kernel(process: ScriptedProcess) -> Kernel:
    return await ready_kernel(process)


@pytest.fixture
async def cell(kernel: Kernel) -> Cell:
    return await new_cell(kernel)
