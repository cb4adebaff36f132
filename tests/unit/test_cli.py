"""The command line without an engine: parsing, help, exit codes."""

from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from aeolus_sandbox import ExitStatus, __version__
from aeolus_sandbox.cli import app
from aeolus_sandbox.cli.diagnosis import Finding, about_containers, about_engine, about_images
from aeolus_sandbox.cli.exits import code_for_program, code_for_run
from aeolus_sandbox.cli.options import limits_for, parse_files, parse_seconds, parse_size
from aeolus_sandbox.cli.present import ImageFolder, without_surrogates
from aeolus_sandbox.engine.base import OWNER_LABEL, ContainerId, ContainerInfo, EngineInfo
from aeolus_sandbox.engine.image_catalog import shipped_catalog
from aeolus_sandbox.engine.images import ImageState
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.tools.code_interpreter import CodeChunk

runner = CliRunner()

MIB = 1024 * 1024


@given(st.text(st.characters(codec=None), max_size=40))
def test_json_text_never_has_a_lone_surrogate(text: str) -> None:
    str(without_surrogates({"a": [text]})["a"][0]).encode("utf-8")


@pytest.mark.parametrize(
    ("text", "size"),
    [("512m", 512 * MIB), ("1g", 1024 * MIB), ("1.5GiB", 1536 * MIB), (str(64 * MIB), 64 * MIB)],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1g", "1x", "1m", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_size(text)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_seconds(text)


def test_files_are_named_by_their_last_part_or_as_told(tmp_path: Path) -> None:
    plain, colon = tmp_path / "a.csv", tmp_path / "b:c"
    plain.write_text("1")
    colon.write_text("2")
    assert parse_files([str(plain), f"{plain}:data/x.csv", str(colon)]) == {
        "a.csv": plain, "data/x.csv": plain, "b:c": colon,
    }  # fmt: skip
    with pytest.raises(typer.BadParameter, match="two files"):
        parse_files([str(plain), f"{plain}:a.csv"])


@given(st.integers(16 * MIB, 1 << 40))
def test_any_memory_that_can_be_asked_for_makes_valid_limits(memory: int) -> None:
    limits = limits_for(memory_bytes=memory, timeout_s=None)
    assert limits.memory_bytes == memory
    assert limits.disk_bytes + limits.tmp_bytes <= memory


@pytest.mark.parametrize(
    ("status", "success", "code"),
    [
        (ExitStatus(reason="exited", code=0), True, 0),
        (ExitStatus(reason="exited", code=1), False, 1),
        (ExitStatus(reason="timed_out", code=137), False, 124),
        (ExitStatus(reason="out_of_memory", code=137), False, 137),
        (ExitStatus(reason="killed", code=143), False, 137),
        (ExitStatus(reason="output_limit"), False, 137),
        (ExitStatus(reason="cancelled"), False, 130),
        (ExitStatus(reason="lost"), False, 125),
    ],
)
def test_every_end_of_a_run_has_its_exit_code(status: ExitStatus, success: bool, code: int) -> None:
    assert code_for_run(status, success=success) == code


def test_shell_ends_with_its_programs_code() -> None:
    assert code_for_program(ExitStatus(reason="exited", code=7)) == 7
    assert code_for_program(ExitStatus(reason="killed", code=143)) == 143
    assert code_for_program(ExitStatus(reason="timed_out", code=137)) == 124


def test_images_never_overwrite_and_take_no_name_from_the_container(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "image-001.png").symlink_to(victim)
    png = CodeChunk(stream="image", content="AAAA", mime_type="image/png")
    odd = CodeChunk(stream="image", content="AAAA", mime_type="image/../../x")
    saved = ImageFolder(folder)
    assert [saved.save(png).name, saved.save(odd).name] == ["image-002.png", "image-003.bin"]
    assert not victim.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "-c", "1", "x.py"],
        ["run", "/nonexistent/x.py"],
        ["run", "-c", "1", "--memory", "lots"],
        ["run", "-c", "1", "--timeout", "0"],
        ["run", "-c", "1", "--file", "/nonexistent"],
        ["run", "-c", "1", "--command-policy", "maybe"],
        ["images", "build", "nosuch"],
        ["images", "build", "--ca-bundle", "/nonexistent"],
        ["nosuch"],
    ],
)
def test_wrong_usage_is_exit_code_2_and_no_traceback(arguments: list[str]) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [[], ["run"], ["shell"], ["images"], ["doctor"], ["reap"], ["version"]])
def test_every_command_has_help(command: list[str]) -> None:
    result = runner.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_help_documents_the_exit_codes() -> None:
    output = runner.invoke(app, ["--help"]).output
    assert all(code in output for code in ("124", "125", "130", "137", "128+n"))


def test_version_is_printed() -> None:
    assert runner.invoke(app, ["version"]).output == f"aeolus {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-c", "1"],
        ["run", "-l", "bash", "-c", "true"],
        ["shell", "true"],
        ["reap"],
    ],
)
def test_no_engine_is_one_line_and_exit_code_125(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    result = runner.invoke(app, arguments)
    assert result.exit_code == 125
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("aeolus: ")
    assert "/nonexistent/docker.sock" in line


def test_doctor_without_an_engine_fails_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    result = runner.invoke(app, ["doctor"])
    assert result.exit_code == 1
    (line,) = result.stdout.splitlines()
    assert line.startswith("fail engine: ")
    assert "DOCKER_HOST" in line


def engine_info(**changes: object) -> EngineInfo:
    about: dict[str, object] = {
        "name": "Docker Engine",
        "version": "27.0",
        "api_version": "1.46",
        "address": "tcp://engine:2376",
        "cgroup_version": "2",
        "storage_driver": "overlay2",
        "security_options": ("name=seccomp,profile=builtin", "name=rootless"),
        "runtimes": ("runc",),
        "default_runtime": "runc",
        "warnings": (),
    }
    return EngineInfo(**(about | changes))  # type: ignore[arg-type]


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.subject: finding.level for finding in findings}


def test_doctor_is_content_with_a_good_engine() -> None:
    assert set(levels(about_engine(engine_info())).values()) == {"ok"}


def test_doctor_says_whether_gvisor_can_be_asked_for() -> None:
    def text(*runtimes: str) -> str:
        findings = about_engine(engine_info(runtimes=runtimes))
        return next(finding.text for finding in findings if finding.subject == "gVisor")

    assert "runsc" in text("runc", "runsc")
    assert "scripts/setup gvisor" in text("runc")


@pytest.mark.parametrize(
    ("changes", "subject", "level"),
    [
        ({"api_version": "1.39"}, "API", "fail"),
        ({"security_options": ("name=rootless",)}, "seccomp", "fail"),
        ({"security_options": ("name=seccomp,profile=default",)}, "user namespace", "warn"),
        ({"storage_driver": "vfs"}, "storage", "warn"),
        ({"warnings": ("WARNING: No swap limit support",)}, "limits", "warn"),
        ({"warnings": ("WARNING: No memory limit support",)}, "limits", "fail"),
    ],
)
def test_doctor_names_what_is_wrong_with_an_engine(
    changes: dict[str, object], subject: str, level: str
) -> None:
    findings = about_engine(engine_info(**changes))
    assert levels(findings)[subject] == level
    assert next(finding.advice for finding in findings if finding.subject == subject)


def test_doctor_says_how_to_build_what_is_missing_or_stale() -> None:
    states = [
        ImageState("base", "aeolus/base:1", "missing"),
        ImageState("python", "aeolus/python:0", "stale"),
        ImageState("shell", "aeolus/shell:1", "current"),
        ImageState("shell", "aeolus/shell:0", "stale"),
    ]
    findings = {finding.subject: finding for finding in about_images(states, shipped_catalog())}
    assert {name: finding.level for name, finding in findings.items()} == {
        "image base": "warn", "image python": "fail", "image shell": "warn",
    }  # fmt: skip
    assert "aeolus images build python" in findings["image python"].advice


def test_doctor_tells_an_abandoned_container_from_a_used_one() -> None:
    mine = Owner.this_process()
    gone = Owner(mine.host, mine.pid, "1", mine.nonce)
    containers = [
        ContainerInfo(ContainerId(name * 12), {OWNER_LABEL: label}, "running")
        for name, label in (("a", str(mine)), ("b", str(gone)), ("c", "odd"))
    ]
    (finding,) = about_containers(containers)
    assert finding.level == "warn"
    assert "b" * 12 in finding.text
    assert "a" * 12 not in finding.text
