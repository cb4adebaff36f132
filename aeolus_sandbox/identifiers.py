"""Identifiers that sort by when they were made: the one door to uuid_utils."""

import uuid_utils


def new_identifier() -> str:
    """Return a new UUID of version 7 (RFC 9562, section 5.7) as text; later ones sort after earlier ones."""
    return str(uuid_utils.uuid7())
