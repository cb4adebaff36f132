"""Texts as they can be sent to a language model and stored."""


def well_formed(text: str) -> str:
    """Return the text with halves of characters joined, or replaced by U+FFFD where the other half is missing.

    A lone surrogate (from a JSON escape, or a file name that is no UTF-8) cannot be encoded, so it could neither be
    sent nor stored.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_blank(text: str) -> bool:
    """Say whether there is nothing to read in a text: the Messages API refuses such a text."""
    return not text.replace("\0", "").strip()
