"""Adds a runtime to the configuration of the Docker engine on this machine, or takes it out again.

    engine_runtime.py add FILE NAME PROGRAM [ARGUMENT...]
    engine_runtime.py remove FILE NAME PROGRAM [ARGUMENT...]

All else in the file stays. Before its first change it is copied, once, to FILE.before-aeolus. `remove` takes out only
the very entry that `add` makes, and a file that then says nothing. The engine must be told to read it again.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any


def add(file: Path, name: str, entry: dict[str, Any]) -> None:
    """Name a runtime in the file, in the place of one of the same name."""
    config = _read(file)
    config.setdefault("runtimes", {})[name] = entry
    _write(file, config)


def remove(file: Path, name: str, entry: dict[str, Any]) -> None:
    """Take a runtime out of the file, where it is this one."""
    config = _read(file)
    runtimes = config.get("runtimes", {})
    if runtimes.get(name) != entry:
        return
    del runtimes[name]
    if not runtimes:
        del config["runtimes"]
    if config or _backup(file).exists():
        _write(file, config)
    else:
        file.unlink()


def _read(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return {}
    config = json.loads(text or "{}")
    if not isinstance(config, dict):
        sys.exit(f"{file} is not a JSON object: it is left as it is")
    return config


def _write(file: Path, config: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and not _backup(file).exists():
        shutil.copy2(file, _backup(file))
    # Beside it and then in its place: the engine never finds half a file.
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(config, indent=4) + "\n", "utf-8")
    if file.exists():
        shutil.copymode(file, new)
    new.replace(file)


def _backup(file: Path) -> Path:
    return file.with_name(f"{file.name}.before-aeolus")


def main() -> None:
    """Do what the arguments say."""
    match sys.argv[1:]:
        case ["add" | "remove" as action, file, name, program, *arguments]:
            entry = {"path": program, "runtimeArgs": arguments}
            (add if action == "add" else remove)(Path(file), name, entry)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main()
    except (OSError, json.JSONDecodeError) as problem:
        sys.exit(f"the engine's configuration is left as it is: {problem}")
