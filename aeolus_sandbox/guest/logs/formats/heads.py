"""Where loggers put what comes before the message of a plain line: its level, logger and thread.

The shapes are those of Python's logging and loguru, logback and log4j, Spring Boot, .NET, Serilog and NLog, zap's console,
Rust's env_logger, Monolog, Elixir, PostgreSQL and what others write in the same way. A word is a level only in such a
place, never elsewhere in a line. All parts are bounded, so that matching takes a time that does not grow with the line.
"""

import re
from typing import Any, Final, NamedTuple

from aeolus_sandbox.guest.logs.levels import level_of_name

_WORDS: Final = (
    "trace|trce|trc|verbose|vrb|debug[1-5]?|dbug|dbg|finest|finer|fine|config|information|info|inf|notice|ntc|note|"
    "warning|warn|wrn|error|err|severe|fail|critical|crit|crt|fatal|ftl|dpanic|panic|alert|emergency|emerg"
)
# Capitals are enough to tell these from the message, and PostgreSQL's are levels only in capitals.
_CAPITALS: Final = (
    "TRACE|TRC|VERBOSE|VRB|DEBUG[1-5]?|DBG|FINEST|FINER|INFO|INF|NOTICE|WARNING|WARN|WRN|ERROR|ERR|SEVERE|"
    "CRITICAL|CRIT|FATAL|FTL|DPANIC|PANIC|ALERT|EMERGENCY|EMERG|SUCCESS"
)
_POSTGRES: Final = "LOG|DETAIL|HINT|CONTEXT|QUERY|STATEMENT|LOCATION"
_NAME: Final = r"[A-Za-z_$][\w.$/\\@<>:-]{0,199}"

_BEFORE: Final = rf"""
    [ ]{{0,8}} (?: [-|] [ ]{{1,8}} )?
    (?: \d\d:\d\d:\d\d (?: [.,]\d{{1,9}} )? [ ]{{1,8}} )??
    (?: \[ [ ]{{0,40}} (?P<thread> [^\[\]]{{1,128}}? ) [ ]{{0,40}} \] [ ]{{1,8}} (?: -[ ] )? )??
    (?: (?P<client> [\w\[\]-]{{1,64}} @ [\w\[\]-]{{1,64}} ) [ ]{{1,8}}
      | (?P<logger> {_NAME} ) [ ]{{1,40}} [-|] [ ]{{1,8}}
      | (?P<channel> [\w-]{{1,64}} ) \. (?= [A-Z]{{4,9}}: )
    )??
"""
_LEVEL: Final = rf"""
    (?: [\[(<] [ ]? (?P<boxed> (?i: {_WORDS} ) ) [ ]{{0,4}} [\])>] :?
      | \t (?P<column> (?i: {_WORDS} ) ) (?= \t )
      | \|? (?P<capitals> {_CAPITALS} ) (?= [ \t|] | $ )
      | (?P<marked> (?i: {_WORDS} ) | {_POSTGRES} ) [ ]{{0,4}} (?P<colon> : )
    )
"""
_HEAD: Final = re.compile(_BEFORE + _LEVEL, re.VERBOSE)

# After the level: Spring Boot's process, a thread where a logger's name follows, a logger's name where it is clear.
_AFTER: Final = re.compile(
    rf"""
    [ \t]{{0,40}}
    (?: (?P<pid> \d{{1,10}} ) [ ] --- [ ] (?: \[ (?P<service> [^\[\]]{{1,128}} ) \] [ ] (?= \[ ) )? )?
    (?: \[ [ ]{{0,40}} (?P<thread> [^\[\]]{{1,128}}? ) [ ]{{0,40}} \] [ ]{{1,8}} (?= {_NAME} [ ]{{0,40}} (?: : | --? ) [ ] ) )?
    (?: (?P<logger> {_NAME} ) (?: [ ]{{1,40}} (?: : | --? ) [ ]{{1,8}} | [ ]? \| [ ]? )
      | (?P<dotted> root | [A-Za-z_]\w{{0,63}} (?: (?: \. | :: ) \w{{1,63}} ){{1,20}} ) : [ ]
      | \| [ ]{{0,8}} (?: (?P<piped> {_NAME} ) [ ]{{0,40}} (?: \| [ ]? | -[ ] ) )?
      | [-:] [ ]{{1,8}}
    )?
    [ ]{{0,40}}
    """,
    re.VERBOSE,
)
_PYTHON_BASIC: Final = re.compile(rf"({_NAME}?):")
_SPACES: Final = re.compile(r"[ \t]{0,40}")
_PROCESS_DIGITS: Final = 10
_ENV_LOGGER: Final = re.compile(rf"[ ]{{1,8}}(?P<level>{_CAPITALS})[ ]{{1,8}}(?P<logger>{_NAME})\][ ]?")

# The columns of zap's console: perhaps a logger, the caller, the message.
_COLUMNS: Final = re.compile(rf"\t(?:(?:({_NAME})\t)?([\w./@-]{{1,200}}:\d{{1,7}})\t)?")


class Head(NamedTuple):
    """What comes before the message of a line."""

    end: int
    """Where the message begins."""
    level: int | None
    fields: dict[str, Any]


def head_at(line: str, position: int) -> Head | None:
    """Return what a logger put at a position of a line, or None where no level is there."""
    found = _HEAD.match(line, position)
    if not found:
        return None
    thread, client, logger, channel, boxed, column, capitals, marked, colon = found.groups()
    fields: dict[str, Any] = {}
    if client:
        fields["client"] = client
    if channel:
        fields["channel"] = channel
    if thread:
        _add_thread(thread, fields)
    if logger:
        fields["logger"] = logger
    end = found.end()
    if column or line.startswith("\t", end):
        end = _read_columns(line, end, fields)
    elif colon:
        end = _read_after_colon(line, end, fields)
    else:
        end = _read_after(line, end, fields)
    return Head(end, level_of_name(boxed or column or capitals or marked), fields)


def env_logger_at(line: str, position: int) -> Head | None:
    """Return the rest of the bracket that Rust's env_logger opens before the stamp; None where it is something else."""
    found = _ENV_LOGGER.match(line, position)
    return found and Head(found.end(), level_of_name(found["level"]), {"logger": found["logger"]})


def _read_after(line: str, position: int, fields: dict[str, Any]) -> int:
    found = _AFTER.match(line, position)
    if not found:
        return position
    pid, service, thread, logger, dotted, piped = found.groups()
    if pid:
        fields["pid"] = int(pid)
    if service:
        fields["service"] = service
    if thread:
        _add_thread(thread, fields)
    if logger := logger or dotted or piped:
        fields["logger"] = logger
    return found.end()


def _read_after_colon(line: str, position: int, fields: dict[str, Any]) -> int:
    # What follows a level and its colon is the message, but for Python's `LEVEL:logger:message`.
    if found := _PYTHON_BASIC.match(line, position):
        fields["logger"] = found[1]
        return found.end()
    found = _SPACES.match(line, position)
    return found.end() if found else position


def _read_columns(line: str, position: int, fields: dict[str, Any]) -> int:
    found = _COLUMNS.match(line, position)
    if not found:
        return position
    logger, caller = found.groups()
    if logger:
        fields["logger"] = logger
    if caller:
        fields["caller"] = caller
    return found.end()


def _add_thread(thread: str, fields: dict[str, Any]) -> None:
    if len(thread) <= _PROCESS_DIGITS and thread.isascii() and thread.isdigit():
        fields["pid"] = int(thread)
    else:
        fields["thread"] = thread
