"""What is shipped: the wheel holds all that the package reads at run time, and it is found there."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_ships_images_profiles_and_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        "aeolus_sandbox/py.typed",
        "aeolus_sandbox/guest/kernel_host.py",
        "aeolus_sandbox/_shipped/seccomp/default.json",
        "aeolus_sandbox/_shipped/images/base/Dockerfile",
        "aeolus_sandbox/_shipped/images/python/requirements.txt",
        "aeolus_sandbox/_shipped/images/shell/Dockerfile",
    }
    assert wanted <= names
    assert not [name for name in names if "/tests/" in name or name.startswith("tests/")]


def test_an_unpacked_wheel_gives_the_same_image_tags_as_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        "from aeolus_sandbox.engine.image_catalog import IMAGE_NAMES, image_reference\n"
        "import aeolus_sandbox; print(aeolus_sandbox.__file__); print([image_reference(n) for n in IMAGE_NAMES])"
    )
    answers = []
    for path in (ROOT, tmp_path):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONPATH": str(path)},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        where, references = run.stdout.splitlines()
        assert where.startswith(str(path))
        answers.append(references)
    assert answers[0] == answers[1]


def test_the_changelog_has_an_entry_for_the_version() -> None:
    from aeolus_sandbox import __version__

    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
