"""The Bash kernel's own process: one bash that lives from cell to cell, with its variables, functions and folder.

Run by path (`python -P .../bash_kernel.py CONNECTION_FILE`).

Bash is interactive, without a terminal, a prompt or job control: so an interrupt or an error that would end a script
ends the cell alone. It reads two lines a cell: one that sources the cell, one that reports `$?`. Each cell has pipes
of its own, opened for the time of the cell, so that

- what a job in the background prints belongs to the cell that started it, however late it comes;
- the lines between cells, and what `set -x` or a prompt says of them, are seen nowhere;
- `exec >file` lasts to the end of its cell.

No descriptor of ours is handed to bash: it opens what it needs under /proc of this process, and closes it again.
What an EXIT trap prints is shown when `exit` ends bash, and not when `set -e` does.
When bash ends (`exit`, `exec`, `set -e`, a signal), this process ends likewise, and the next one starts anew.
"""

import getopt
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

# For our own modules. Last, and the cells are no Python: nothing of theirs is imported.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from aeolus_sandbox.guest.small_kernel import Cell, LanguageInfo, SmallKernel
from aeolus_sandbox.guest.text_pipe import TextPipe, path_of, unread_bytes

_BASH: Final = ("bash", "--norc", "--noprofile", "--noediting", "-i", "-s")
_SETUP: Final = "set +m +H +o history; shopt -u checkwinsize; shopt -s execfail; unset MAILCHECK\n"
_OURS: Final = frozenset(
    {
        "IPYTHONDIR",
        "JUPYTER_PLATFORM_DIRS",
        "MPLCONFIGDIR",
        "PYDEVD_DISABLE_FILE_VALIDATION",
    }
)
"""Variables of the guest that a cell does not see."""
_INTERRUPTED: Final = 130
_SYNTAX_ERROR: Final = 2
_SYNTAX_LINES: Final = 4
_BEGIN_PAUSE_S: Final = 0.002
_COUNT_DIGITS: Final = 4
_SYNTAX_CHARACTERS: Final = 1000

# `return` restores `$?` for the next cell.
_REPORT: Final = r"""builtin printf '%s\0' "$1" 2 done "$2" >{reports}; builtin return "$2" """
# `read` at the end of input asks whoever runs the cell; with a pipe or a file at its input it is what it always is.
_READ: Final = r"""read() {{
    if [[ /dev/stdin -ef /dev/null ]]; then
        builtin printf '%s\0' {token} $(($# + 1)) read "$@" >{reports}
        builtin read "$@" <{answers}
    else
        builtin read "$@"
    fi
}}
"""


class _Text:
    """A text that bash finds under a path; in memory, so that a full disk stops no cell."""

    def __init__(self, text: str) -> None:
        self._fd = os.memfd_create("cell")
        with os.fdopen(self._fd, "wb", closefd=False) as file:
            file.write(text.encode("utf-8", "replace"))
        self.path = path_of(self._fd)

    def close(self) -> None:
        os.close(self._fd)


class _Run:
    """One cell under way: its code, its pipes, and what bash says of its syntax."""

    def __init__(self, kernel: SmallKernel, cell: Cell, code: str) -> None:
        self.cell = cell
        self.token = secrets.token_hex(8)
        self.interrupted = False
        self._complaints: list[str] = []
        self._code = _Text(code)
        self._stdout = TextPipe(kernel, partial(cell.write, "stdout"))
        self._stderr = TextPipe(kernel, self._write_stderr)

    @property
    def line(self) -> str:
        """What bash is to read."""
        return f"builtin . {self._code.path} </dev/null >{self._stdout.path} 2>{self._stderr.path}\n"

    def close(self) -> None:
        """Hand on what was printed; a job in the background may go on printing."""
        self._stdout.release()
        self._stderr.release()
        self._code.close()

    def end(self, status: int, *, ends_kernel: bool = False) -> None:
        """End the cell with bash's `$?`."""
        self.close()
        complaint = "\n".join(self._complaints)[:_SYNTAX_CHARACTERS]
        if status == 0:
            self.cell.succeed(ends_kernel=ends_kernel)
        elif self.interrupted and status == _INTERRUPTED:
            self.cell.fail("KeyboardInterrupt", "the code was interrupted", ends_kernel=ends_kernel)
        elif complaint and status == _SYNTAX_ERROR:
            self.cell.fail("SyntaxError", complaint)
        else:
            self.cell.fail("ExitStatus", str(status), ends_kernel=ends_kernel)

    def _write_stderr(self, text: str) -> None:
        # Bash names the file of a syntax error, which says nothing here: a cell has none.
        prefix = f"{self._code.path}: "
        if prefix in text:
            found = (line.partition(prefix)[2] for line in text.splitlines() if prefix in line)
            room = _SYNTAX_LINES - len(self._complaints)
            self._complaints += [line for line in found if "warning: " not in line][:room]
            text = text.replace(prefix, "")
        self.cell.write("stderr", text)


class BashInterpreter:
    """The bash, and the cell that it runs."""

    def __init__(self, kernel: SmallKernel) -> None:
        self._kernel = kernel
        self._run: _Run | None = None
        self._unread = b""
        reports, self._reports_in = os.pipe()
        self._answers, self._answers_in = os.pipe()
        self._report = _Text(_REPORT.format(reports=path_of(self._reports_in)))
        self._asking: _Text | None = None
        self._bash = subprocess.Popen(  # noqa: S603 - a constant
            _BASH,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in os.environ.items() if name not in _OURS},
            start_new_session=True,  # `kill 0` in a cell does not reach this process
        )
        assert self._bash.stdin is not None
        self._lines = self._bash.stdin.fileno()
        os.set_blocking(self._lines, False)
        self._send(_SETUP)
        kernel.watch(reports, partial(self._read_reports, reports))
        kernel.run_in_thread(self._bash.wait, self._take_end)

    @property
    def info(self) -> LanguageInfo:
        """What the kernel says of itself."""
        return LanguageInfo("bash", "5.2", "text/x-sh", ".sh")

    def start(self, cell: Cell, code: str) -> None:
        """Begin with a cell."""
        try:
            run = _Run(self._kernel, cell, code)
        except OSError as error:
            cell.fail("OSError", f"the cell cannot be started: {error.strerror}")
            return
        self._run = run
        self._send(self._stdin_line(run) + run.line + self._report_line(run))

    def interrupt(self) -> None:
        """Interrupt bash and the programs that it waits for; jobs in the background go on."""
        run = self._run
        if run and not run.interrupted and unread_bytes(self._lines):
            # Bash has not seen the cell yet, and would forget the signal until then.
            self._kernel.run_in_thread(
                partial(time.sleep, _BEGIN_PAUSE_S), lambda _: self._interrupt_again(run)
            )
        elif run:
            run.interrupted = True
            with suppress(ProcessLookupError):
                os.killpg(self._bash.pid, signal.SIGINT)
            # Bash drops the line that it works on, which can be the one that reports: say it again.
            self._send(self._report_line(run))

    def take_answer(self, text: str) -> None:
        """Give a line to the `read` that has asked for it."""
        with suppress(BlockingIOError):
            os.write(self._answers_in, text.encode("utf-8", "replace") + b"\n")

    def _interrupt_again(self, run: _Run) -> None:
        if run is self._run:
            self.interrupt()

    def _send(self, lines: str) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # bash has ended, or a flood of interrupts
            os.write(self._lines, lines.encode())

    def _report_line(self, run: _Run) -> str:
        return f'builtin . {self._report.path} {run.token} "$?"\n'

    def _stdin_line(self, run: _Run) -> str:
        was_asking, self._asking = self._asking, None
        if was_asking:
            was_asking.close()
        if not run.cell.allows_stdin:
            return "builtin unset -f read\n" if was_asking else ""
        paths = {"reports": path_of(self._reports_in), "answers": path_of(self._answers)}
        self._asking = _Text(_READ.format(token=run.token, **paths))
        return f"builtin . {self._asking.path}\n"

    def _read_reports(self, fd: int) -> None:
        self._unread += os.read(fd, 64 * 1024)
        while (report := self._next_report()) is not None:
            token, kind, *values = report
            if self._run and token == self._run.token:
                self._take_report(self._run, kind, values)

    def _next_report(self) -> list[str] | None:
        token, _, rest = self._unread.partition(b"\0")
        count, _, rest = rest.partition(b"\0")
        if not count.isdigit() or len(count) > _COUNT_DIGITS:
            self._unread = self._unread if not count else b""  # a cell has found the pipe, and plays with it
            return None
        *values, rest = rest.split(b"\0", int(count))
        if len(values) < int(count):
            return None
        self._unread = rest
        return [text.decode("utf-8", "replace") for text in (token, *values)]

    def _take_report(self, run: _Run, kind: str, values: list[str]) -> None:
        if kind == "read":
            options = _read_options(values)
            run.cell.ask(options.get("-p", ""), password="-s" in options)
        elif kind == "done":
            self._run = None
            run.end(int(values[0]))

    def _take_end(self, status: int) -> None:
        run, self._run = self._run, None
        if run and status < 0:
            run.close()
        elif run:
            run.end(status, ends_kernel=True)
        self._kernel.stop(status)


def _read_options(arguments: list[str]) -> dict[str, str]:
    """Return the options of a call of `read`."""
    try:
        return dict(getopt.getopt(arguments, "ersa:d:i:n:N:p:t:u:")[0])
    except getopt.GetoptError:
        return {}


def main() -> None:
    """Run the kernel until it ends."""
    kernel = SmallKernel(Path(sys.argv[1]))
    kernel.run(BashInterpreter(kernel))


if __name__ == "__main__":
    main()
