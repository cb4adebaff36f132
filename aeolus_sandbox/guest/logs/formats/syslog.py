"""Syslog as it is sent and as it is stored: RFC 5424, and what RFC 3164 describes and its many writers make of it."""

import re
from typing import Any, Final

from aeolus_sandbox.guest.logs.formats.base import ParseContext
from aeolus_sandbox.guest.logs.formats.haproxy import proxy_fields
from aeolus_sandbox.guest.logs.formats.heads import head_at
from aeolus_sandbox.guest.logs.formats.structured_data import data_at
from aeolus_sandbox.guest.logs.levels import level_of_name, level_of_number
from aeolus_sandbox.guest.logs.lines import Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamps

_PRIORITY: Final = re.compile(r"<(0|[1-9]\d{0,2})>", re.ASCII)
_GREATEST_PRIORITY: Final = 191  # facility 23, severity 7 (RFC 5424, 6.2.1)
_VERSION: Final = re.compile(r"[1-9]\d{0,2} ", re.ASCII)
_HEADER: Final = re.compile(r"1 (\S+) (\S+) (\S+) (\S+) (\S+) ")

# The host may be missing (a program's own line on /dev/log has none), and so may the tag. RFC 3164 ends a tag at the
# first character that is not alphanumeric; real ones have dots, slashes and brackets of their own (`CRON(pam_unix)`).
_ORIGIN: Final = re.compile(
    r" ?(?:(?P<host>[^\s\[\]<>\"'=,()]{1,255}?) {1,8})??"
    r"(?P<app>[^\s\[\]:<>\"'=,]{1,128})(?:\[(?P<pid>[^\[\]\s]{1,64})\]:?|:)(?: |$)"
)
_HOST: Final = re.compile(r" ?(?P<host>[^\s\[\]<>\"'=,():]{1,255}) ")

# Cisco's devices: a sequence number, perhaps their name, and a mark before the stamp of a clock that is not in step;
# then facility, severity and mnemonic.
_CISCO_START: Final = re.compile(
    r"(?:\d{1,10}: )?(?:(?P<host>[A-Za-z][\w.-]{0,254}): )?[*.]?(?=[A-Z][a-z]{2} )"
)
_CISCO: Final = re.compile(
    r"(?: [A-Z]{3,4})?: %(?P<app>[A-Z][\w-]{0,63}?)-(?P<severity>[0-7])-(?P<msgid>\w{1,64}): ?", re.ASCII
)

_BYTE_ORDER_MARK: Final = "\ufeff"


class SyslogLines:
    """Lines with the header of RFC 5424 or of RFC 3164, the latter with or without its priority.

    The fields are facility, severity, host, app, pid, msgid and data; what a header leaves out or says to be nil (`-`) is
    None where it is RFC 5424's, and not there where it is not. What HAProxy writes is taken apart too. The level is that
    of the severity, or where there is none, as in most files, the one that the message begins with.
    """

    def __init__(self, context: ParseContext) -> None:
        self._stamps = Stamps(context)

    def parse(self, line: str) -> Parsed | None:
        """Return what the line holds, or None when it has no such header."""
        if not line.startswith("<"):
            return self._stored(line, 0, {}, None)
        found = _PRIORITY.match(line)
        if not found or (priority := int(found[1])) > _GREATEST_PRIORITY:
            return None
        severity = priority & 7
        fields: dict[str, Any] = {"facility": priority >> 3, "severity": severity}
        level = level_of_number(severity, "syslog")
        position = found.end()
        if _VERSION.match(line, position):
            return self._modern(line, position, fields, level)
        return self._stored(line, position, fields, level) or _without_stamp(line, position, fields, level)

    def _modern(self, line: str, position: int, fields: dict[str, Any], level: int | None) -> Parsed | None:
        header = _HEADER.match(line, position)
        data = data_at(line, header.end()) if header else None
        if not header or not data:
            return None
        stamp, host, app, pid, msgid = header.groups()
        end, fields_data = data
        fields["host"] = None if host == "-" else host
        fields["app"] = None if app == "-" else app
        fields["pid"] = None if pid == "-" else _process(pid)
        fields["msgid"] = None if msgid == "-" else msgid
        fields["data"] = fields_data
        time_us, zone, flags = (None, None, 0) if stamp == "-" else self._stamps.parse(stamp)
        return Parsed(line[end + 1 :].removeprefix(_BYTE_ORDER_MARK), level, time_us, zone, fields, flags)

    def _stored(self, line: str, position: int, fields: dict[str, Any], level: int | None) -> Parsed | None:
        found = self._stamps.at_start(line, position)
        if found:
            end, time_us, zone, flags = found
            origin = _origin_at(line, end, is_whole=line[position].isdigit() and not position)
            if origin:
                return _with_origin(Parsed(None, level, time_us, zone, fields, flags), line, origin)
        return self._of_cisco(line, position, fields, level)

    def _of_cisco(self, line: str, position: int, fields: dict[str, Any], level: int | None) -> Parsed | None:
        start = _CISCO_START.match(line, position)
        stamp = self._stamps.at_start(line, start.end()) if start else None
        if not start or not stamp:
            return None
        end, time_us, zone, flags = stamp
        what = _CISCO.match(line, end)
        if not what:
            return None
        severity = int(what["severity"])
        fields |= {"app": what["app"], "msgid": what["msgid"]}
        fields.setdefault("severity", severity)
        if start["host"]:
            fields["host"] = start["host"]
        own = level_of_number(severity, "syslog") if level is None else level
        return Parsed(line[what.end() :], own, time_us, zone, fields, flags)


def _origin_at(line: str, position: int, *, is_whole: bool) -> re.Match[str] | None:
    """Return what names host and program, of which one may be missing unless it has to be whole.

    It has to be where nothing but a stamp of ISO 8601 tells a line from that of any other logger; and for the same reason
    no host is called like a level.
    """
    origin = _ORIGIN.match(line, position)
    if is_whole:
        if not origin or not origin["host"]:
            return None
    elif not origin:
        origin = _HOST.match(line, position)
    return origin if origin and (not origin["host"] or level_of_name(origin["host"]) is None) else None


def _with_origin(parsed: Parsed, line: str, origin: re.Match[str]) -> Parsed:
    fields = parsed.fields
    assert fields is not None
    for name, value in origin.groupdict().items():
        if value is not None:
            fields[name] = _process(value) if name == "pid" else value
    message = parsed.message = line[origin.end() :]
    if parsed.level is None and (head := head_at(message, 0)):
        parsed.level = head.level
    if str(fields.get("app", "")).startswith("haproxy") and (proxied := proxy_fields(message)):
        fields |= proxied
    return parsed


def _without_stamp(line: str, position: int, fields: dict[str, Any], level: int | None) -> Parsed:
    # RFC 3164 (4.3.3): whatever follows a priority is a message.
    origin = _ORIGIN.match(line, position)
    parsed = Parsed(line[position:], level, None, None, fields)
    return _with_origin(parsed, line, origin) if origin and not origin["host"] else parsed


def _process(text: str) -> int | str:
    return int(text) if len(text) <= 10 and text.isascii() and text.isdigit() else text
