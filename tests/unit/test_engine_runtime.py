"""What the setup changes in the engine's configuration: its own entry, and nothing of the user's."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

SCRIPT: Final = Path(__file__).resolve().parents[2] / "scripts" / "engine_runtime.py"
ENTRY: Final = {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none"]}


def _run(action: str, file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), action, str(file), "runsc", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def _change(action: str, file: Path) -> None:
    done = _run(action, file, "/usr/bin/runsc", "--network=none")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_user_has_configured_stays(tmp_path: Path) -> None:
    file = tmp_path / "daemon.json"
    own = {"data-root": "/data", "runtimes": {"other": {"path": "/usr/bin/other"}}}
    file.write_text(json.dumps(own))
    file.chmod(0o600)
    _change("add", file)
    _change("add", file)
    added = {"data-root": "/data", "runtimes": {"other": {"path": "/usr/bin/other"}, "runsc": ENTRY}}
    assert json.loads(file.read_text()) == added
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads((tmp_path / "daemon.json.before-aeolus").read_text()) == own
    _change("remove", file)
    assert json.loads(file.read_text()) == own


def test_a_file_that_was_not_there_is_not_there_afterwards(tmp_path: Path) -> None:
    file = tmp_path / "docker" / "daemon.json"
    _change("add", file)
    assert json.loads(file.read_text()) == {"runtimes": {"runsc": ENTRY}}
    _change("remove", file)
    assert not file.exists()
    _change("remove", file)


def test_an_entry_of_somebody_else_is_not_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "daemon.json"
    theirs = json.dumps({"runtimes": {"runsc": {"path": "/opt/runsc"}}})
    file.write_text(theirs)
    _change("remove", file)
    assert file.read_text() == theirs


def test_a_file_that_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "daemon.json"
    for text in ("{ not json", "[]"):
        file.write_text(text)
        done = _run("add", file, "/usr/bin/runsc")
        assert done.returncode == 1
        assert "left as it is" in done.stderr
        assert file.read_text() == text
