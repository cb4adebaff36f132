"""The rules that code can break, for all languages. What breaks them in a language is in its own table."""

from dataclasses import dataclass
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis.findings import Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """What is said of code that breaks it."""

    name: str
    severity: Severity
    message: str


PROCESS_START: Final = Rule("process_start", "info", "It starts another process.")
NETWORK: Final = Rule("network", "info", "It uses the network, which a sandbox does not have.")
NOT_PARSED: Final = Rule("not_parsed", "info", "It is not valid in its language; the kernel will say so.")

SHELL_COMMAND: Final = Rule("shell_command", "warning", "It hands a text to a shell.")
FORK: Final = Rule("fork", "warning", "It forks the kernel, whose sockets and threads a copy must not use.")
COMPUTED_CODE: Final = Rule("computed_code", "warning", "It runs a text as code.")
UNSAFE_UNPICKLING: Final = Rule(
    "unsafe_unpickling", "warning", "It loads objects in a form that can run any code."
)
FOREIGN_FUNCTION: Final = Rule("foreign_function", "warning", "It calls into native code.")
WRITE_OUTSIDE_WORKSPACE: Final = Rule(
    "write_outside_workspace", "warning", "It writes outside the workspace."
)
SYSTEM_SECRET: Final = Rule(
    "system_secret", "warning", "It reads what tells of the system, or of other processes."
)
ENDS_KERNEL: Final = Rule(
    "ends_kernel", "warning", "It ends the kernel's process, and all variables are lost."
)
HUGE_ALLOCATION: Final = Rule("huge_allocation", "warning", "It asks for more memory than a sandbox has.")
CHANGES_BUILTINS: Final = Rule(
    "changes_builtins", "warning", "It changes what the language gives to all code in the kernel."
)
IMPORT_HOOK: Final = Rule("import_hook", "warning", "It changes how modules are loaded.")
ENVIRONMENT_DUMP: Final = Rule(
    "environment_dump", "warning", "It reads the whole environment, which may hold secrets."
)
CLASS_WALK: Final = Rule("class_walk", "warning", "It reaches for classes or objects that it was not given.")
TOO_LONG: Final = Rule("too_long_to_analyse", "warning", "It is too long to be analysed.")
TOO_COMPLEX: Final = Rule("too_complex_to_analyse", "warning", "Analysing it takes too much work.")
TOO_DEEP: Final = Rule("too_deeply_nested", "warning", "It is nested too deeply to be analysed.")
NOT_ANALYSED: Final = Rule("not_analysed", "warning", "It could not be analysed in time.")

DECODED_CODE: Final = Rule("decoded_code", "danger", "It runs code or a command that it decodes first.")
FORK_BOMB: Final = Rule("fork_bomb", "danger", "It forks in a loop.")
ENDLESS_PROCESS_LOOP: Final = Rule(
    "endless_process_loop", "danger", "It starts processes in a loop without end."
)
METADATA_ADDRESS: Final = Rule(
    "metadata_address", "danger", "It names the address of a cloud's metadata service."
)
DELETE_OUTSIDE_WORKSPACE: Final = Rule(
    "delete_outside_workspace", "danger", "It deletes outside the workspace."
)
KILLS_SANDBOX: Final = Rule(
    "kills_sandbox", "danger", "It sends a signal to every process, or to the one that runs the sandbox."
)
