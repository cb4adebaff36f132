"""What Python code is warned about."""

import re
from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis import paths
from aeolus_sandbox.tools.code_interpreter.analysis.conditions import (
    comes_from,
    computed,
    huge,
    in_endless_loop,
    in_loop,
    is_metadata,
    no,
    number,
    option_is,
    outside,
    path,
    receiver_path,
    secret,
    text_at,
    words_of,
)
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact
from aeolus_sandbox.tools.code_interpreter.analysis.rules import Command, RuleBook, ShellText, Sign

_STARTERS: Final = tuple(
    [f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")]
    + [f"os.{name}" for name in ("popen", "posix_spawn", "posix_spawnp")]
    + [f"os.spawn{suffix}" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")]
    + [f"asyncio.create_subprocess_{kind}" for kind in ("exec", "shell")]
    + [
        "pty.spawn",
        "multiprocessing.Process",
        "multiprocessing.Pool",
        "concurrent.futures.ProcessPoolExecutor",
    ]
)
_NOT_WAITED_FOR: Final = ("subprocess.Popen", "multiprocessing.Process", "os.posix_spawn", "os.popen")
_SHELLS: Final = (
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "asyncio.create_subprocess_shell",
)
_SUBPROCESS: Final = tuple(name for name in _STARTERS if name.startswith("subprocess."))
_EXECUTE: Final = ("eval", "exec", "compile")
_DECODERS: Final = (
    "base64.",
    "binascii.",
    "codecs.decode()",
    "bytes.fromhex()",
    "zlib.",
    "gzip.",
    "bz2.",
    "lzma.",
)
_UNPICKLERS: Final = tuple(
    [
        f"{module}.{name}"
        for module in ("pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal")
        for name in ("load", "loads")
    ]
    + [
        "pickle.Unpickler",
        "shelve.open",
        "joblib.load",
        "pandas.read_pickle",
        "torch.load",
        "yaml.unsafe_load",
    ]
)
_NETWORK: Final = (
    *("socket.socket", "socket.create_connection", "socket.getaddrinfo", "socket.gethostbyname"),
    *("requests.*", "httpx.*", "urllib.request.urlopen", "urllib.request.urlretrieve", "urllib3.PoolManager"),
    *(
        "http.client.HTTPConnection",
        "http.client.HTTPSConnection",
        "aiohttp.ClientSession",
        "aiohttp.request",
    ),
    *("ftplib.FTP", "smtplib.SMTP", "smtplib.SMTP_SSL", "telnetlib.Telnet", "asyncio.open_connection"),
    *("paramiko.SSHClient", "websockets.connect"),
)
_PATH: Final = "pathlib.Path()."
_READERS: Final = (
    "open",
    "os.open",
    "os.listdir",
    "os.scandir",
    "os.walk",
    "os.readlink",
    "numpy.loadtxt",
    "pandas.read_csv",
)
_PATH_READERS: Final = tuple(
    _PATH + name for name in ("read_text", "read_bytes", "open", "iterdir", "glob", "rglob")
)
_DELETERS: Final = ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", "os.removedirs")
_MAKERS: Final = ("os.mkdir", "os.makedirs", "os.truncate", "os.chmod", "os.chown", "os.mkfifo", "os.mknod")
_ALLOCATORS: Final = (
    "bytearray",
    "bytes",
    *(f"numpy.{name}" for name in ("zeros", "ones", "empty", "full", "arange")),
)
_CLASS_WALK: Final = re.compile(r"(^object|\.__(class|base|bases|mro)__(\.\[\])?)\.__subclasses__$")
_KILLERS: Final = ("os.kill", "os.killpg", "signal.pidfd_send_signal")


def _writes(fact: Fact, position: int) -> bool:
    mode = fact.argument(position, "mode").text or "r"
    return any(letter in mode for letter in "wax+")


def _opens_outside(fact: Fact) -> bool:
    return _writes(fact, 1) and outside(0, "file")(fact)


def _path_opens_outside(fact: Fact) -> bool:
    return _writes(fact, 0) and receiver_path(paths.is_outside)(fact)


def _walks_classes(fact: Fact) -> bool:
    return _CLASS_WALK.search(fact.name) is not None


def _url(fact: Fact) -> bool:
    return path(lambda text: text.startswith(("http://", "https://", "ftp://")), 0)(fact)


def _shell_command(fact: Fact) -> Command | None:
    """What `subprocess` is to run: a text with a shell, else the words."""
    value = fact.argument(0, "args")
    if option_is(True, "shell")(fact):
        return value.text
    return words_of(value)


def _dumps_environment_by_magic(fact: Fact) -> bool:
    return fact.argument(0).text in ("env", "set_env") and not fact.argument(1).text


def _installs_by_magic(fact: Fact) -> bool:
    return fact.argument(0).text in ("pip", "conda", "mamba", "uv")


_ENVIRONMENT: Final = ("os.environ", "os.environb")

RULES: Final = RuleBook(
    (
        Sign(rule.PROCESS_START, _STARTERS),
        Sign(rule.SHELL_COMMAND, _SHELLS),
        Sign(rule.SHELL_COMMAND, _SUBPROCESS, option_is(True, "shell")),
        Sign(rule.SHELL_COMMAND, _SHELLS, kinds=frozenset({"passed"})),
        Sign(rule.FORK, ("os.fork", "os.forkpty")),
        Sign(rule.FORK_BOMB, ("os.fork", "os.forkpty"), in_loop),
        Sign(rule.ENDLESS_PROCESS_LOOP, _NOT_WAITED_FOR, in_endless_loop),
        Sign(rule.COMPUTED_CODE, _EXECUTE, computed()),
        Sign(rule.DECODED_CODE, _EXECUTE, comes_from(*_DECODERS, "marshal.")),
        Sign(rule.DECODED_CODE, (*_SHELLS, *_SUBPROCESS), comes_from(*_DECODERS, name="args")),
        Sign(
            rule.UNSAFE_UNPICKLING,
            _UNPICKLERS,
            no(comes_from("pickle.dumps()", "dill.dumps()", "cloudpickle.dumps()", "marshal.dumps()")),
        ),
        Sign(rule.UNSAFE_UNPICKLING, ("numpy.load",), option_is(True, "allow_pickle")),
        Sign(rule.UNSAFE_UNPICKLING, _UNPICKLERS, comes_from(*_DECODERS)),
        Sign(rule.FOREIGN_FUNCTION, ("ctypes", "cffi", "ctypes.util"), kinds=frozenset({"import"})),
        Sign(
            rule.FOREIGN_FUNCTION,
            ("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll.LoadLibrary", "cffi.FFI().dlopen"),
        ),
        Sign(rule.NETWORK, _NETWORK),
        Sign(
            rule.NETWORK,
            ("pandas.read_csv", "pandas.read_json", "pandas.read_html", "pandas.read_excel"),
            _url,
        ),
        Sign(rule.NETWORK, ("get_ipython().run_line_magic",), _installs_by_magic),
        Sign(rule.METADATA_ADDRESS, ("",), is_metadata, frozenset({"text"})),
        Sign(rule.DELETE_OUTSIDE_WORKSPACE, _DELETERS, outside(0, "path")),
        Sign(
            rule.DELETE_OUTSIDE_WORKSPACE,
            (_PATH + "unlink", _PATH + "rmdir"),
            receiver_path(paths.is_outside),
        ),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, ("open",), _opens_outside),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, (_PATH + "open",), _path_opens_outside),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _MAKERS, outside(0, "path")),
        Sign(
            rule.WRITE_OUTSIDE_WORKSPACE,
            tuple(_PATH + name for name in ("write_text", "write_bytes", "mkdir", "touch", "chmod")),
            receiver_path(paths.is_outside),
        ),
        Sign(
            rule.WRITE_OUTSIDE_WORKSPACE,
            (
                "shutil.copy",
                "shutil.copyfile",
                "shutil.copytree",
                "shutil.move",
                "os.rename",
                "os.replace",
                "os.symlink",
            ),
            outside(1, "dst"),
        ),
        Sign(rule.SYSTEM_SECRET, _READERS, secret(0, "file")),
        Sign(rule.SYSTEM_SECRET, _PATH_READERS, receiver_path(paths.is_secret)),
        Sign(rule.ENDS_KERNEL, ("os._exit", "os.abort", "exit", "quit", "faulthandler._sigsegv")),
        Sign(rule.ENDS_KERNEL, ("os._exit", "os.abort"), kinds=frozenset({"passed"})),
        Sign(
            rule.ENDS_KERNEL,
            tuple(f"os.exec{suffix}" for suffix in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")),
        ),
        Sign(rule.ENDS_KERNEL, _KILLERS, comes_from("os.getpid()", "os.getpgid()", "os.getpgrp()")),
        Sign(rule.KILLS_SANDBOX, _KILLERS, number(-1, 0, 1)),
        Sign(rule.KILLS_SANDBOX, _KILLERS, comes_from("os.getppid()")),
        Sign(rule.HUGE_ALLOCATION, _ALLOCATORS, huge(0)),
        Sign(rule.HUGE_ALLOCATION, ("*",), huge(0), frozenset({"repeat"})),
        Sign(
            rule.CHANGES_BUILTINS,
            ("builtins.*", "__builtins__.*", "globals().__builtins__"),
            kinds=frozenset({"write"}),
        ),
        Sign(
            rule.IMPORT_HOOK,
            ("sys.meta_path", "sys.path_hooks", "sys.modules.*", "builtins.__import__"),
            kinds=frozenset({"write"}),
        ),
        Sign(rule.IMPORT_HOOK, ("sys.meta_path.*", "sys.path_hooks.*")),
        Sign(rule.ENVIRONMENT_DUMP, _ENVIRONMENT, kinds=frozenset({"passed"})),
        Sign(rule.ENVIRONMENT_DUMP, ("os.environ.items", "os.environ.values")),
        Sign(rule.ENVIRONMENT_DUMP, ("get_ipython().run_line_magic",), _dumps_environment_by_magic),
        Sign(rule.CLASS_WALK, ("*.__subclasses__",), _walks_classes),
        Sign(rule.CLASS_WALK, ("gc.get_objects", "gc.get_referrers")),
    ),
    (
        ShellText((*_SHELLS, "get_ipython().system", "get_ipython().getoutput"), text_at(0, "cmd")),
        ShellText(_SUBPROCESS, _shell_command),
    ),
)
