"""The structured data of RFC 5424 (section 6.3): `[id name="value" ...]`, any number of times, or `-`."""

import re
from typing import Any, Final

# A value's `"`, `\` and `]` must be escaped; a `]` that is not is taken all the same, as it cannot mean anything else.
_ID: Final = re.compile(r'\[([^\s=\]"]+)')
_PARAMETER: Final = re.compile(r' +([^\s=\]"]+)="([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_END: Final = re.compile(r" *\]")
_ESCAPED: Final = re.compile(r'\\(["\\\]])')


def data_at(line: str, position: int) -> tuple[int, dict[str, Any] | None] | None:
    """Return where the data at a position end and their elements by id, each with its values by name.

    A name that comes several times has a list of its values. The elements are None where the data are nil (`-`).
    None: there are no data, or they do not end as they must, before a space or the end of the line.
    """
    elements: dict[str, Any] | None = None
    end = position
    if line.startswith("-", position):
        end += 1
    else:
        elements = {}
        while found := _ID.match(line, end):
            closed = _read_element(line, found.end(), elements.setdefault(found[1], {}))
            if closed is None:
                return None
            end = closed
        if not elements:
            return None
    return (end, elements) if end == len(line) or line[end] == " " else None


def _read_element(line: str, end: int, values: dict[str, Any]) -> int | None:
    while found := _PARAMETER.match(line, end):
        end = found.end()
        name, value = found.groups()
        if "\\" in value:
            value = _ESCAPED.sub(r"\1", value)  # a backslash before anything else stands for itself
        known = values.get(name)
        if known is None:
            values[name] = value
        elif isinstance(known, list):
            known.append(value)
        else:
            values[name] = [known, value]
    closed = _END.match(line, end)
    return closed.end() if closed else None
