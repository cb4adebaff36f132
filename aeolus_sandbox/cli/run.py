"""`aeolus run`: a file or a piece of code, run in a sandbox, its output shown as it comes."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, Final

import typer

from aeolus_sandbox.capabilities import SANDBOXED, CapabilityKind, Grants
from aeolus_sandbox.cli.exits import Exit, code_for_run
from aeolus_sandbox.cli.options import (
    ContainerIsolation,
    Files,
    Isolation,
    Memory,
    Timeout,
    limits_for,
    parse_files,
)
from aeolus_sandbox.cli.present import ForPeople, ImageFolder, JsonLines, Presenter
from aeolus_sandbox.cli.running import run_orderly
from aeolus_sandbox.cli.sink import stop_writing
from aeolus_sandbox.errors import SessionClosed
from aeolus_sandbox.limits import Limits
from aeolus_sandbox.manager import SessionManager
from aeolus_sandbox.streaming.policies import Window
from aeolus_sandbox.streaming.session import StreamingToolSession
from aeolus_sandbox.streaming.stdin import EndOfInput
from aeolus_sandbox.streaming.tool import IsolationMode
from aeolus_sandbox.tools.code_interpreter import (
    CodeInterpreterInput,
    CodeInterpreterTool,
    CodePolicy,
    CodeResult,
)
from aeolus_sandbox.tools.code_interpreter.languages import language_of_file
from aeolus_sandbox.tools.terminal import TerminalInput, TerminalResult, TerminalTool
from aeolus_sandbox.tools.terminal.command_check import CommandPolicy

_SHELLS: Final = {"bash": "bash", "shell": "bash", "sh": "sh"}
_STDIN: Final = "-"
_WITH_PACKAGES: Final = Grants.of(*SANDBOXED.kinds, CapabilityKind.INSTALL_PACKAGES)
_ALL_CHUNKS: Final = Window(max_chunks=2**31)
"""As many chunks as the spool holds: a slow screen loses nothing before that."""

AnySession = StreamingToolSession[Any, Any]
Opener = Callable[[SessionManager], Any]


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be run."""

    code: str
    language: str
    name: str
    files: dict[str, Path]
    image: str | None
    packages: tuple[str, ...]
    command_policy: CommandPolicy
    code_policy: CodePolicy
    isolation: IsolationMode

    async def open(self, manager: SessionManager) -> AnySession:
        """Open a session that runs it."""
        shell = _SHELLS.get(self.language)
        if shell is None:
            return await manager.open(
                CodeInterpreterTool(image=self.image, code_policy=self.code_policy, isolation=self.isolation),
                CodeInterpreterInput(
                    code=self.code, language=self.language, files=dict(self.files), packages=self.packages
                ),
                policy=_ALL_CHUNKS,
            )
        if self.packages:
            msg = "packages are for the code interpreter's languages: name one with --language"
            raise typer.BadParameter(msg, param_hint="--package")
        session = await manager.open(
            TerminalTool(
                image=self.image or "shell", command_policy=self.command_policy, isolation=self.isolation
            ),
            # The code itself, not a file of it, so that the command check sees it.
            TerminalInput(command=(shell, "-c", self.code, self.name), tty=False, files=dict(self.files)),
            policy=_ALL_CHUNKS,
        )
        with suppress(SessionClosed):  # it has ended already
            await session.send_stdin(EndOfInput())
        return session


def run(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="What to run; - reads it from stdin.", show_default=False),
    ] = None,
    code: Annotated[str | None, typer.Option("-c", "--code", help="Code to run instead of a file.")] = None,
    language: Annotated[
        str | None,
        typer.Option(
            "-l",
            "--language",
            help="python, javascript, typescript, r, wasm, or a shell: bash, sh; default: what the file's suffix "
            "says, else python.",
        ),
    ] = None,
    timeout: Timeout = None,
    memory: Memory = None,
    file_option: Files = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="Write each chunk, and then the result, as a JSON object on a line."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", file_okay=False, help="Save images here, numbered.")
    ] = None,
    image: Annotated[str | None, typer.Option("--image", help="Another image to run it in.")] = None,
    packages: Annotated[
        list[str] | None,
        typer.Option(
            "--package",
            metavar="NAME",
            help="Run it in an image that has this package too, such as 'pandas==2.2.*'; it is built once, with "
            "network. Repeatable.",
        ),
    ] = None,
    command_policy: Annotated[
        CommandPolicy,
        typer.Option("--command-policy", help="What happens to a shell script that looks dangerous."),
    ] = CommandPolicy.DENY,
    code_policy: Annotated[
        CodePolicy,
        typer.Option("--code-policy", help="What happens to code in another language that looks dangerous."),
    ] = CodePolicy.WARN,
    isolation: Isolation = ContainerIsolation.CONTAINER,
) -> None:
    """Run a file (or -c CODE) in a sandbox, and show its output as it comes.

    On a terminal, only plain colours and line ends of the output are obeyed, and all else is made visible; a file or
    a pipe gets the exact bytes.
    """
    text, suffix, name = _source(file, code)
    program = Program(
        code=text,
        language=(language or language_of_file(suffix) or "python").lower(),
        name=name,
        files=parse_files(file_option or []),
        image=image,
        packages=tuple(packages or ()),
        command_policy=command_policy,
        code_policy=code_policy,
        isolation=isolation.mode,
    )
    images = ImageFolder(out) if out is not None else None
    presenter = JsonLines(images) if json_lines else ForPeople(images)
    limits = limits_for(memory_bytes=memory, timeout_s=timeout)
    raise typer.Exit(run_orderly(_run(program, limits, presenter)))


async def _run(program: Program, limits: Limits, presenter: Presenter) -> int:
    # Whoever types the names of packages is the one who may grant that they are installed.
    grants = _WITH_PACKAGES if program.packages else SANDBOXED
    async with (
        SessionManager(limits=limits, grants=grants) as manager,
        await program.open(manager) as session,
    ):
        try:
            async for chunk in session:
                await asyncio.to_thread(presenter.chunk, chunk)
            result: CodeResult | TerminalResult = await session.finalize()
            await asyncio.to_thread(presenter.result, result)
        except BrokenPipeError:
            stop_writing()
            return Exit.BROKEN_PIPE
        return code_for_run(result.status, success=_succeeded(result))


def _succeeded(result: CodeResult | TerminalResult) -> bool:
    if isinstance(result, TerminalResult):
        return result.status.ok
    # `sys.exit()` is how a script ends well, and to a kernel an exception.
    left_well = (
        result.error is not None
        and result.error.name == "SystemExit"
        and result.error.value in {"", "0", "None"}
    )
    return result.success or left_well


def _source(file: str | None, code: str | None) -> tuple[str, str, str]:
    """Return the code, the suffix that tells its language, and its name."""
    if (file is None) == (code is None):
        msg = "give either a FILE (- for stdin) or -c CODE"
        raise typer.BadParameter(msg)
    if code is not None:
        return code, "", "code"
    assert file is not None
    if file == _STDIN:
        return sys.stdin.buffer.read().decode("utf-8", "replace"), "", "stdin"
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        msg = f"cannot read {file!r}: {error.strerror}"
        raise typer.BadParameter(msg) from error
    return data.decode("utf-8", "replace"), PurePath(file).suffix.lower(), PurePath(file).name
