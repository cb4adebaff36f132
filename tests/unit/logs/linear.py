"""How the time of reading a line grows with its length, told apart from how busy the machine is."""

import time
from collections.abc import Callable, Iterator

LENGTH = 60_000
LIMIT_S = 2.0
"""Processor time that a line of `LENGTH` characters must stay below: it costs milliseconds in linear time, and tens of
seconds in quadratic time."""

_REPEATED = (
    "[", "]", "{", '"', "\\", "a", " ", "\t", "=", "a=", 'a="', '\\"', "[x ", "<1>", "0", "0 ", "2024-", "a.", "a::", ": ",
    "- ", "[a] ", "error", "ERROR ", "|", ", client: ", '", ', "std", "\x1b[", "\x1b[0m", "{}", "\t{", "'", ' a="b"', "{a} ",
)  # fmt: skip
"""Texts that patterns may try again and again where they are not careful."""
_BEGINNINGS = (
    "",
    "<14>1 - h a - - ",
    '<14>1 - h a - - [x@1 a="',
    "Mar 10 09:15:02 ",
    "Mar 10 09:15:02 h haproxy[7]: ",
    '<134>Mar 10 09:15:02 h haproxy[7]: 192.0.2.9:5 [x] f b/s 0/0/1/2/3 200 5 - - ---- 1/1/1/1/1 0/0 {',
    "2024-03-10T09:15:02Z ",
    "2024-03-10T09:15:02Z stdout F ",
    "2024-03-10 09:15:02 [error] 1#1: ",
    "[2024-03-10 09:15:02] [INFO] ",
    "[Sun Mar 10 09:15:02 2024] [core:error] ",
    '{"log":"',
    "I0310 09:15:02.120123 1 ",
    "ERROR ",
    "a=",
)  # fmt: skip


def long_lines() -> Iterator[str]:
    """Yield long lines that begin as lines of some format and go on with one thing repeated."""
    for beginning in _BEGINNINGS:
        for text in _REPEATED:
            yield beginning + text * (LENGTH // len(text))


def processor_seconds(read: Callable[[], object]) -> float:
    """Return what a reading costs; other processes do not count."""
    begun = time.process_time()
    read()
    return time.process_time() - begun
