"""Where the state file is when nobody says otherwise."""

import os
from pathlib import Path

from aeolus_sandbox.errors import ConfigurationError


def default_state_path() -> Path:
    """Return the path of the state file: `AEOLUS_STATE`, else `aeolus/state.db` in the user's folder for state.

    That folder is `$XDG_STATE_HOME`, else `~/.local/state` (XDG Base Directory Specification, which also says that
    a relative `$XDG_STATE_HOME` counts as none).

    Raises:
        ConfigurationError: The user has no home folder.
    """
    try:
        if named := os.environ.get("AEOLUS_STATE"):
            return Path(named).expanduser()
        folder = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not folder.is_absolute():
            folder = Path.home() / ".local" / "state"
    except RuntimeError as error:
        msg = f"there is no place for the state file: {error}; name one in the environment variable AEOLUS_STATE"
        raise ConfigurationError(msg) from error
    return folder / "aeolus" / "state.db"
