"""What a log tailer's container can do to the host's folders: look at those that were granted, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from aeolus_sandbox import SessionManager
from aeolus_sandbox.capabilities import Grants, ReadLogs
from aeolus_sandbox.engine.base import OWNER_LABEL, ReadOnlyMount
from aeolus_sandbox.engine.docker import DockerEngine
from aeolus_sandbox.engine.image_catalog import image_reference
from aeolus_sandbox.errors import CapabilityDenied, LogPathRefused
from aeolus_sandbox.hardening import container_spec
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.profiles import Mount, SandboxProfile
from aeolus_sandbox.sandboxes.context import SandboxContext
from aeolus_sandbox.tools.log_tailer import LogTailerInput, LogTailerTool
from tests.integration.running import PATIENCE_S

pytestmark = pytest.mark.docker


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "logs"
    folder.mkdir(mode=0o755)
    (folder / "app.log").write_text("one\n")
    return folder


async def said(
    engine: DockerEngine, command: str, *mounts: ReadOnlyMount, groups: tuple[int, ...] = ()
) -> str:
    """Return what a command prints in a hardened container with these mounts, which nobody has checked."""
    argv = ("sh", "-c", f"exec 2>&1; {command}")
    spec = container_spec(
        SandboxProfile(image="shell", argv=argv, groups=groups),
        image=await asyncio.to_thread(image_reference, "shell"),
        argv=argv,
        limits=Limits(),
        labels={OWNER_LABEL: "test of mounts"},
        seccomp='{"defaultAction": "SCMP_ACT_ALLOW"}',
    )
    async with asyncio.timeout(PATIENCE_S):
        container = await engine.launch(spec.model_copy(update={"mounts": mounts}))
        try:
            text = b""
            while pieces := await container.stream.read():
                text += b"".join(piece.data for piece in pieces)
        finally:
            await container.aclose()
    return text.decode()


def mounted(folder: Path) -> ReadOnlyMount:
    return ReadOnlyMount(source=str(folder), target=f"/host{folder}")


async def test_a_mounted_folder_cannot_be_written(engine: DockerEngine, logs: Path) -> None:
    logs.chmod(0o777)
    (logs / "app.log").chmod(0o666)
    here = f"/host{logs}"
    answer = await said(
        engine,
        f"cat {here}/app.log; echo x >{here}/x; echo x >>{here}/app.log; rm {here}/app.log",
        mounted(logs),
    )
    assert answer.startswith("one\n")
    assert answer.count("Read-only file system") == 3
    assert [path.name for path in logs.iterdir()] == ["app.log"]


async def test_what_is_mounted_below_a_folder_is_not_there(engine: DockerEngine) -> None:
    """`/dev/shm` is a file system of its own that everybody may write to, on every Linux host."""
    answer = await said(
        engine,
        "touch /host/dev/shm/aeolus; echo; grep ' /host' /proc/self/mountinfo",
        mounted(Path("/dev")),
    )
    refusal, points = answer.split("\n\n") if "\n\n" in answer else (answer, "")
    assert "Read-only file system" in refusal
    assert [line.split()[4] for line in points.splitlines()] == ["/host/dev"]
    assert not Path("/dev/shm/aeolus").exists()


async def test_the_tailer_sees_no_other_file_of_the_host(engine: DockerEngine, logs: Path) -> None:
    (logs.parent / "secret").write_text("secret")
    answer = await said(engine, "find /host -mindepth 1 ! -type d; id -G", mounted(logs), groups=(4,))
    assert answer.splitlines() == [f"/host{logs}/app.log", "10001 4"]


async def test_a_folder_that_is_swapped_between_check_and_mount_ends_the_session(
    engine: DockerEngine, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "app.log").write_text("secret\n")
    run = SandboxContext.run

    def swap() -> None:
        logs.rename(tmp_path / "moved")
        logs.symlink_to(elsewhere)

    async def swapped(self: SandboxContext, profile: SandboxProfile) -> Any:
        await asyncio.to_thread(swap)
        return await run(self, profile)

    monkeypatch.setattr(SandboxContext, "run", swapped)
    async with SessionManager(grants=Grants.of(ReadLogs(roots=[str(logs)]))) as manager:
        with pytest.raises(LogPathRefused, match="replaced"):
            await manager.open(LogTailerTool(), LogTailerInput(path=str(logs / "app.log")))
        assert manager.open_sessions == []
    assert await engine.list_containers({OWNER_LABEL: manager.owner}) == []


@pytest.mark.parametrize(
    "path", ["{logs}/../secret", "/etc/passwd", "/proc/self/environ", "{logs}-other/x.log"]
)
async def test_a_path_outside_starts_no_container(engine: DockerEngine, logs: Path, path: str) -> None:
    (logs.parent / "secret").write_text("secret")
    async with SessionManager(grants=Grants.of(ReadLogs(roots=[str(logs)]))) as manager:
        with pytest.raises(LogPathRefused):
            await manager.open(LogTailerTool(), LogTailerInput(path=path.format(logs=logs)))
        assert await engine.list_containers({OWNER_LABEL: manager.owner}) == []


async def test_a_call_can_narrow_what_it_may_read_and_never_widen_it(logs: Path) -> None:
    (logs / "deep").mkdir()
    tool_input = LogTailerInput(path=str(logs / "app.log"))
    async with SessionManager(grants=Grants.of(ReadLogs(roots=[str(logs / "deep")]))) as manager:
        for grants in (None, Grants.of(ReadLogs(roots=[str(logs)])), Grants()):
            with pytest.raises(CapabilityDenied):
                await manager.open(LogTailerTool(), tool_input, grants=grants)


def test_a_socket_or_a_system_folder_is_never_mounted() -> None:
    for source in ("/var/run/docker.sock", "/proc", "/run/x", "/"):
        with pytest.raises(ValueError, match=r"mounted|socket"):
            container_spec(
                SandboxProfile(image="x", mounts=(Mount(source=source, target="/host/x"),)),
                image="x", argv=(), limits=Limits(), labels={}, seccomp="{}",
            )  # fmt: skip
