"""Lines whose shape is one program's own: glog's, Ruby's, Redis's, and the error logs of nginx, Apache and MySQL."""

import re
from typing import Any, Final

from aeolus_sandbox.guest.logs.formats.heads import Head
from aeolus_sandbox.guest.logs.levels import level_of_name
from aeolus_sandbox.guest.logs.lines import LEVELS, Parsed
from aeolus_sandbox.guest.logs.timestamps import Stamps

_GLOG: Final = re.compile(r"([DIWEF])(?=\d{4}(?:\d{4})? \d\d:)", re.ASCII)
_GLOG_PLACE: Final = re.compile(r" {1,8}(\d{1,19}) ([\w./+-]{1,200}:\d{1,7})\] ?", re.ASCII)

_RUBY: Final = re.compile(r"([DIWEFAU]), \[(?=\d{4}-)", re.ASCII)
_RUBY_HEAD: Final = re.compile(r" #(\d{1,19})\] {1,8}[A-Z]{3,7} -- ([^:]{0,128}): ?", re.ASCII)

_REDIS: Final = re.compile(r"(\d{1,10}):([XCSM]) (?=\d\d [A-Z])", re.ASCII)
_REDIS_LEVELS: Final = {
    ".": LEVELS.index("debug"),
    "-": LEVELS.index("info"),
    "*": LEVELS.index("notice"),
    "#": LEVELS.index("warning"),
}  # redis.conf: debug, verbose, notice, warning; syslog gets the verbose ones as info

_NGINX: Final = re.compile(r" \[([a-z]{4,6})\] (\d{1,10})#(\d{1,10}): (?:\*(\d{1,19}) )?", re.ASCII)
_NGINX_DETAIL: Final = re.compile(
    r', (client|server|request|subrequest|upstream|host|referrer): ("[^"]*"|[^,]*)(?=, (?:client|server|request|'
    r"subrequest|upstream|host|referrer): |$)"
)

_APACHE: Final = re.compile(
    r"\] \[(?:(?P<module>\w{0,64}):)?(?P<level>[a-z]{4,6}\d?)\] (?:\[pid (?P<pid>\d{1,10})(?::tid (?P<tid>\d{1,20}))?\] )?"
    r"(?:(?P<error>\(\d{1,6}\)[^:\[]{1,128}: ))?(?:\[client (?P<client>[^\]\s]{1,128})\] )?(?P<code>AH\d{5}: )?",
    re.ASCII,
)

_MYSQL: Final = re.compile(
    r" (?P<thread>\d{1,19}) \[(?P<level>System|Warning|Note|ERROR|Error)\]"
    r"(?: \[(?P<code>MY-\d{1,6})\] \[(?P<subsystem>\w{1,64})\])? ?"
)


def glog_line(line: str, stamps: Stamps) -> Parsed | None:
    """Return what a line of glog, klog or Abseil holds, or None when it is none of theirs."""
    start = _GLOG.match(line)
    stamp = stamps.at_start(line, 1) if start else None
    place = _GLOG_PLACE.match(line, stamp[0]) if stamp else None
    if not start or not stamp or not place:
        return None
    fields = {"thread": int(place[1]), "caller": place[2]}
    return Parsed(line[place.end() :], level_of_name(start[1]), *stamp[1:3], fields, stamp[3])


def ruby_line(line: str, stamps: Stamps) -> Parsed | None:
    """Return what a line of Ruby's Logger (Rails) holds, or None when it is none of its."""
    start = _RUBY.match(line)
    stamp = stamps.at_start(line, start.end()) if start else None
    head = _RUBY_HEAD.match(line, stamp[0]) if stamp else None
    if not start or not stamp or not head:
        return None
    fields: dict[str, Any] = {"pid": int(head[1])}
    if program := head[2].strip():
        fields["logger"] = program
    level = None if start[1] in "AU" else level_of_name(start[1])
    return Parsed(line[head.end() :], level, *stamp[1:3], fields, stamp[3])


def redis_line(line: str, stamps: Stamps) -> Parsed | None:
    """Return what a line of Redis holds, or None when it is none of its."""
    start = _REDIS.match(line)
    stamp = stamps.at_start(line, start.end()) if start else None
    if not start or not stamp:
        return None
    level = _REDIS_LEVELS.get(line[stamp[0] + 1 : stamp[0] + 2])
    fields = {"pid": int(start[1]), "role": start[2]}
    return Parsed(line[stamp[0] + 3 :], level, *stamp[1:3], fields, stamp[3])


def server_head(line: str, position: int) -> Head | None:
    """Return what MySQL, nginx and Apache put after a stamp, or None where it is something else."""
    if line.startswith("] [", position):
        return _apache_head(line, position)
    following = line[position + 1 : position + 2]
    if following == "[" and (found := _NGINX.match(line, position)):
        fields: dict[str, Any] = {"pid": int(found[2]), "thread": int(found[3])}
        if found[4]:
            fields["connection"] = int(found[4])
        fields |= {name: value.strip('"') for name, value in _NGINX_DETAIL.findall(line, found.end())}
        return Head(found.end(), level_of_name(found[1]), fields)
    if following.isdigit() and (found := _MYSQL.match(line, position)):
        name = "note" if found["level"] == "System" else found["level"]
        fields = {key: found[key] for key in ("code", "subsystem") if found[key]}
        return Head(found.end(), level_of_name(name), {"thread": int(found["thread"]), **fields})
    return None


def _apache_head(line: str, position: int) -> Head | None:
    found = _APACHE.match(line, position)
    if not found or (level := level_of_name(found["level"].rstrip("12345678"))) is None:
        return None
    fields: dict[str, Any] = {key: found[key] for key in ("module", "client") if found[key]}
    fields |= {key: int(found[key]) for key in ("pid", "tid") if found[key]}
    for key in ("code", "error"):
        if found[key]:
            fields[key] = found[key].removesuffix(": ")
    return Head(found.end(), level, fields)
