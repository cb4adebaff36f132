"""Puts the image's font cache where matplotlib looks for it, when matplotlib is first imported.

matplotlib takes its cache from a writable directory only, and here these are empty at the start: without this, the
first plot of every session would list all fonts again.
"""

# Every start of Python pays for what is imported here: no pathlib, no contextlib.
# ruff: noqa: PTH103, PTH208, PTH211, SIM105
import os
import sys

BAKED = "/usr/local/share/matplotlib"


class FontCache:
    """A finder that finds nothing: it only notices that matplotlib is being imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Links the cache once and steps aside."""
        if name == "matplotlib":
            sys.meta_path.remove(cls)
            try:
                link_cache(os.environ.get("MPLCONFIGDIR", ""))
            except OSError:
                pass  # slower, not broken: matplotlib makes its own


def link_cache(directory):
    """Links each baked file into the directory, unless that is the baked one or holds such a file."""
    if directory and directory != BAKED:
        os.makedirs(directory, exist_ok=True)
        for name in os.listdir(BAKED):
            if not os.path.lexists(f"{directory}/{name}"):
                os.symlink(f"{BAKED}/{name}", f"{directory}/{name}")


sys.meta_path.insert(0, FontCache)
