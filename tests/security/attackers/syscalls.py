"""Tries, from inside a container, every system call that our seccomp profile refuses.

Standard library only, one file: the test hands its source to `python3 -c`. Prints one JSON line per attempt:
`{"name": ..., "needs": ..., "outcome": "errno" | "allowed" | "signal" | "timeout" | "absent", "detail": ...}`.

Arguments are real where that does no harm, and else such that a kernel without a filter answers something other
than EPERM. `needs` names the capability without which the kernel itself would say EPERM. Nothing here may harm the
host even when everything is allowed: the control runs do exactly that.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass

NO_FILE = b"/nonexistent-aeolus\0"
AT_FDCWD = -100
TIME_LIMIT_S = 10.0
ARM = platform.machine() == "aarch64"

Argument = int | bytes
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


@dataclass(frozen=True)
class Attempt:
    """One call: its numbers on x86-64 and aarch64 (-1: does not exist there) and its arguments."""

    name: str
    x86_64: int
    aarch64: int
    args: tuple[Argument, ...] | Callable[[], tuple[Argument, ...]] = ()
    needs: str | None = None
    control: bool = (
        True  # False: an unfiltered kernel would load a module for it, so only the filtered run tries
    )

    @property
    def number(self) -> int:
        """The number of the call on this machine."""
        return self.aarch64 if ARM else self.x86_64


def _zeros(count: int) -> bytes:
    return bytes(count)


def _iovecs() -> tuple[Argument, ...]:
    """Arguments with which process_vm_* copies eight bytes of this process onto themselves."""
    buffer = ctypes.create_string_buffer(8)
    _KEPT.append(buffer)
    iovec = struct.pack("QQ", ctypes.addressof(buffer), 8)
    return (os.getpid(), iovec, 1, iovec, 1, 0)


def _own_terminal() -> int:
    """A terminal that is the controlling one of a new session: what TIOCSTI wants."""
    os.setsid()
    _, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    return terminal


_KEPT: list[object] = []
_NAMESPACES = {
    "mount": 0x00020000,
    "cgroup": 0x02000000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}
_PERF_DUMMY = struct.pack("IIQ", 1, 112, 9) + _zeros(24) + struct.pack("Q", 0b1100000) + _zeros(64)
_BPF_ARRAY = struct.pack("IIII", 2, 4, 4, 1) + _zeros(104)

KEYS = [
    Attempt("keyctl", 250, 219, (0, -3, 1)),
    Attempt("add_key", 248, 217, (b"user\0", b"aeolus\0", b"x", 1, -2)),
    Attempt("request_key", 249, 218, (b"user\0", b"aeolus-none\0", 0, 0)),
]
KERNEL_PROGRAMS = [
    Attempt("bpf", 321, 280, (0, _BPF_ARRAY, 72), "SYS_ADMIN"),
    Attempt("userfaultfd", 323, 282, (1,)),
    Attempt("perf_event_open", 298, 241, (_PERF_DUMMY, 0, -1, -1, 0), "SYS_ADMIN"),
    Attempt("io_uring_setup", 425, 425, (1, _zeros(120)), "SYS_ADMIN"),
    Attempt("io_uring_enter", 426, 426, (-1, 1, 0, 0, 0, 0)),
    Attempt("io_uring_register", 427, 427, (-1, 0, 0, 0)),
    Attempt("init_module", 175, 105, (_zeros(64), 64, b"\0"), "SYS_MODULE"),
    Attempt("finit_module", 313, 273, (-1, b"\0", 0), "SYS_MODULE"),
    Attempt("delete_module", 176, 106, (b"aeolus_none\0", os.O_NONBLOCK), "SYS_MODULE"),
    Attempt("kexec_load", 246, 104, (0, 17, 0, 0), "SYS_BOOT"),  # 17 segments: one more than there may be
    Attempt("kexec_file_load", 320, 294, (-1, -1, 0, b"\0", 0xFFFF), "SYS_BOOT"),
]
OTHER_PROCESSES = [
    Attempt("ptrace", 101, 117, (0, 0, 0, 0)),
    Attempt("process_vm_readv", 310, 270, _iovecs),
    Attempt("process_vm_writev", 311, 271, _iovecs),
    Attempt("kcmp", 312, 272, lambda: (os.getpid(), os.getpid(), 0, 0, 1)),
    Attempt("pidfd_getfd", 438, 438, lambda: (os.pidfd_open(os.getpid()), 0, 0)),
    Attempt("process_madvise", 440, 440, (-1, 0, 0, 0, 0)),
    Attempt("process_mrelease", 448, 448, (-1, 0)),
]
MOUNTS = [
    Attempt("mount", 165, 40, (b"aeolus\0", b"/tmp\0", b"tmpfs\0", 0, 0), "SYS_ADMIN"),
    Attempt("umount2", 166, 39, (NO_FILE, 0), "SYS_ADMIN"),
    Attempt("pivot_root", 155, 41, (NO_FILE, NO_FILE), "SYS_ADMIN"),
    Attempt("fsopen", 430, 430, (b"tmpfs\0", 0), "SYS_ADMIN"),
    Attempt("fsconfig", 431, 431, (-1, 0, 0, 0, 0), "SYS_ADMIN"),
    Attempt("fsmount", 432, 432, (-1, 0, 0), "SYS_ADMIN"),
    Attempt("fspick", 433, 433, (AT_FDCWD, b"/tmp\0", 0), "SYS_ADMIN"),
    Attempt("move_mount", 429, 429, (-1, b"\0", -1, b"\0", 0x44), "SYS_ADMIN"),
    Attempt("open_tree", 428, 428, (AT_FDCWD, b"/\0", 0)),
    Attempt("mount_setattr", 442, 442, (AT_FDCWD, b"/\0", 0, _zeros(32), 32), "SYS_ADMIN"),
    Attempt("chroot", 161, 51, (b"/\0",), "SYS_CHROOT"),
    Attempt(
        "name_to_handle_at",
        303,
        264,
        (AT_FDCWD, b"/tmp\0", struct.pack("I", 128) + _zeros(132), _zeros(4), 0),
    ),
    Attempt("open_by_handle_at", 304, 265, (AT_FDCWD, _zeros(16), 0), "DAC_READ_SEARCH"),
    Attempt("quotactl", 179, 60, (0x800007 << 8, NO_FILE, 0, _zeros(128))),
    Attempt("quotactl_fd", 443, 443, (-1, 0x800007 << 8, 0, 0)),
    Attempt("swapon", 167, 224, (NO_FILE, 0), "SYS_ADMIN"),
    Attempt("swapoff", 168, 225, (NO_FILE,), "SYS_ADMIN"),
    Attempt("fanotify_init", 300, 262, (0x200, 0), "SYS_ADMIN"),
    Attempt("fanotify_mark", 301, 263, (-1, 1, 1, AT_FDCWD, b"/tmp\0")),
    Attempt("mknodat(char device)", 259, 33, (AT_FDCWD, b"/tmp/aeolus-c\0", 0o020600, 0x103), "MKNOD"),
    Attempt("mknodat(block device)", 259, 33, (AT_FDCWD, b"/tmp/aeolus-b\0", 0o060600, 0x700), "MKNOD"),
    Attempt("mknod(char device)", 133, -1, (b"/tmp/aeolus-d\0", 0o020600, 0x103), "MKNOD"),
]
NAMESPACES = [
    Attempt("unshare(files)", 272, 97, (0x200,)),
    Attempt("setns", 308, 268, lambda: (os.open("/proc/self/ns/uts", os.O_RDONLY), 0), "SYS_ADMIN"),
    Attempt("clone3", 435, 435, (_zeros(32) + struct.pack("Q", signal.SIGCHLD) + _zeros(24), 64)),
    *(Attempt(f"unshare({kind})", 272, 97, (flag,), "SYS_ADMIN") for kind, flag in _NAMESPACES.items()),
    *(
        Attempt(f"clone({kind})", 56, 220, (flag | signal.SIGCHLD, 0, 0, 0, 0), "SYS_ADMIN")
        for kind, flag in _NAMESPACES.items()
    ),
]
MACHINE = [
    Attempt("reboot", 169, 142, (0, 0, 0, 0), "SYS_BOOT"),  # no magic numbers: nobody can be rebooted by this
    Attempt("acct", 163, 89, (NO_FILE,), "SYS_PACCT"),
    Attempt("sethostname", 170, 161, (b"aeolus", 6), "SYS_ADMIN"),
    Attempt("setdomainname", 171, 162, (b"aeolus", 6), "SYS_ADMIN"),
    Attempt("settimeofday", 164, 170, (0, 0), "SYS_TIME"),
    Attempt("clock_settime", 227, 112, (1, _zeros(16))),
    Attempt("adjtimex", 159, 171, (_zeros(256),)),
    Attempt("clock_adjtime", 305, 266, (0, _zeros(256))),
    Attempt("syslog", 103, 116, (10, 0, 0), "SYSLOG"),
    Attempt("lookup_dcookie", 212, 18, (0, _zeros(64), 64), "SYS_ADMIN"),
    Attempt("vhangup", 153, 58, (), "SYS_TTY_CONFIG"),
    Attempt("modify_ldt", 154, -1, (0, _zeros(64), 64)),
    Attempt("iopl", 172, -1, (0,)),
    Attempt("ioperm", 173, -1, (0x80, 1, 0)),
    Attempt("personality(no address randomisation)", 135, 92, (0x0040000,)),
    Attempt("personality(readable is executable)", 135, 92, (0x0400000,)),
    Attempt("sync", 162, 81),
    Attempt("syncfs", 306, 267, lambda: (os.open("/tmp", os.O_RDONLY),)),
    Attempt("sysfs", 139, -1, (3, 0, 0)),
]
MEMORY = [
    Attempt("mbind", 237, 235, (0, 0, 0, 0, 0, 0)),
    Attempt("set_mempolicy", 238, 237, (0, 0, 0)),
    Attempt("get_mempolicy", 239, 236, (0, 0, 0, 0, 0)),
    Attempt("migrate_pages", 256, 238, (0, 0, 0, 0)),
    Attempt("move_pages", 279, 239, (0, 0, 0, 0, 0, 0)),
    Attempt("memfd_secret", 447, 447, (0,)),
    Attempt("mlockall", 151, 230, (0,)),
    Attempt("munlockall", 152, 231),
    Attempt("remap_file_pages", 216, 234, (0, 0, 0, 0, 0)),
    Attempt("vmsplice", 278, 75, (-1, _zeros(16), 1, 0)),
    Attempt("tee", 276, 77, (-1, -1, 1, 0)),
]
QUEUES = [
    Attempt("io_setup", 206, 0, (1, _zeros(8))),
    Attempt("io_submit", 209, 2, (0, 1, 0)),
    Attempt("shmget", 29, 194, (0, 4096, 0o600)),
    Attempt("semget", 64, 190, (0, 1, 0o600)),
    Attempt("msgget", 68, 186, (0, 0o600)),
    Attempt("msgsnd", 69, 189, (-1, _zeros(16), 8, 0)),
    Attempt("mq_open", 240, 180, (b"aeolus\0", os.O_CREAT | os.O_RDWR, 0o600, 0)),
    Attempt("ioprio_get", 252, 31, (1, 0)),
    Attempt("ioprio_set", 251, 30, (1, 0, 2 << 13)),
    Attempt("sched_setattr", 314, 274, (0, struct.pack("I", 48) + _zeros(44), 0)),
    Attempt("setfsuid", 122, 151, (10001,)),
    Attempt("setfsgid", 123, 152, (10001,)),
    Attempt("futex_waitv", 449, 449, (0, 0, 0, 0, 0)),
    Attempt("cachestat", 451, 451, (-1, 0, 0, 0)),
    Attempt("statmount", 457, 457, (0, 0, 0, 0)),
    Attempt("listmount", 458, 458, (0, 0, 0, 0)),
]
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
SOCKETS = [
    Attempt("socket(AF_ALG)", *_SOCKET, (38, 5, 0)),
    Attempt("socket(AF_ALG, high bits set)", *_SOCKET, (1 << 32 | 38, 5, 0)),
    Attempt("socket(AF_VSOCK)", *_SOCKET, (40, 1, 0)),
    Attempt("socket(AF_PACKET)", *_SOCKET, (17, 3, 0), "NET_RAW"),
    Attempt("socket(AF_INET, raw)", *_SOCKET, (2, 3, 1), "NET_RAW"),
    Attempt("socket(AF_NETLINK, sock_diag)", *_SOCKET, (16, 3, 4)),
    Attempt("socket(AF_NETLINK, netfilter)", *_SOCKET, (16, 3, 12)),
    Attempt("socket(AF_NETLINK, audit)", *_SOCKET, (16, 3, 9)),
    Attempt("socket(AF_NETLINK, uevent)", *_SOCKET, (16, 3, 15)),
    Attempt("socketpair(AF_INET)", *_SOCKETPAIR, (2, 1, 0, _zeros(8))),
    Attempt("socket(AF_TIPC)", *_SOCKET, (30, 1, 0), control=False),
    Attempt("socket(AF_RDS)", *_SOCKET, (21, 5, 0), control=False),
    Attempt("socket(AF_CAN)", *_SOCKET, (29, 3, 1), control=False),
    Attempt("socket(AF_BLUETOOTH)", *_SOCKET, (31, 3, 1), control=False),
    Attempt("socket(AF_SMC)", *_SOCKET, (43, 1, 0), control=False),
    Attempt("socket(AF_INET, SCTP)", *_SOCKET, (2, 1, 132), control=False),
    Attempt("socket(AF_INET, DCCP)", *_SOCKET, (2, 6, 0), control=False),
    Attempt("socket(AF_INET6, MPTCP)", *_SOCKET, (10, 1, 262), control=False),
]
_IOCTL = (16, 29)
TERMINALS = [
    Attempt("ioctl(TIOCSTI)", *_IOCTL, lambda: (_own_terminal(), 0x5412, b"x")),
    Attempt("ioctl(TIOCSTI, high bits set)", *_IOCTL, lambda: (_own_terminal(), 1 << 32 | 0x5412, b"x")),
    Attempt("ioctl(TIOCLINUX)", *_IOCTL, lambda: (_own_terminal(), 0x541C, b"\2" + _zeros(15))),
    Attempt("ioctl(TIOCSETD)", *_IOCTL, lambda: (_own_terminal(), 0x5423, _zeros(4))),
]
I386_GETPID = "int 0x80 (32-bit getpid)"
OTHER_ABIS = [
    Attempt(I386_GETPID, 20, -1),
    Attempt("x32 getpid", 39 | 1 << 30, -1),
]
ATTEMPTS: list[Attempt] = [
    *(KEYS + KERNEL_PROGRAMS + OTHER_PROCESSES + MOUNTS + NAMESPACES),
    *(MACHINE + MEMORY + QUEUES + SOCKETS + TERMINALS + OTHER_ABIS),
]


def _int80(number: int) -> int:
    """Call a 32-bit system call from a 64-bit process: mov eax, number; int 0x80; ret."""
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8" + struct.pack("<I", number) + b"\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


def _call(attempt: Attempt) -> dict[str, str]:
    if attempt.name == I386_GETPID:
        result = _int80(attempt.number)
        return {"outcome": "allowed" if result >= 0 else "errno", "detail": str(result)}
    args = attempt.args if isinstance(attempt.args, tuple) else attempt.args()
    passed = [
        ctypes.c_long(value) if isinstance(value, int) else ctypes.create_string_buffer(value, len(value))
        for value in args
    ]
    me = os.getpid()
    ctypes.set_errno(0)
    result = _LIBC.syscall(ctypes.c_long(attempt.number), *passed)
    if os.getpid() != me:
        os._exit(0)  # the child that clone made, and nobody refused
    if result == -1:
        return {"outcome": "errno", "detail": errno.errorcode[ctypes.get_errno()]}
    return {"outcome": "allowed", "detail": str(result)}


def _child(attempt: Attempt, report: int) -> None:
    try:
        said = _call(attempt)
    except OSError as failure:  # the preparation failed, not the call
        said = {"outcome": "unprepared", "detail": str(failure)}
    os.write(report, json.dumps(said).encode())
    os._exit(0)


def attempt_in_child(attempt: Attempt) -> dict[str, str]:
    """Fork, let the child try, and tell what became of it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(attempt, writer)
    os.close(writer)
    readable, _, _ = select.select([reader], [], [], TIME_LIMIT_S)
    said = os.read(reader, 4096) if readable else b'{"outcome": "timeout", "detail": ""}'
    os.close(reader)
    death = _death(child)
    return json.loads(said) if said else death


def _death(child: int) -> dict[str, str]:
    """Reap a child; how it ended is the answer where it could not give one itself."""
    until = time.monotonic() + TIME_LIMIT_S
    while time.monotonic() < until:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid and os.WIFSIGNALED(status):
            return {"outcome": "signal", "detail": signal.Signals(os.WTERMSIG(status)).name}
        if pid:
            return {"outcome": "silent", "detail": f"exit code {os.waitstatus_to_exitcode(status)}"}
        select.select([], [], [], 0.001)
    os.kill(child, signal.SIGKILL)
    return {"outcome": "timeout", "detail": ""}


def main() -> None:
    """Try everything; with the argument `control`, everything that is harmless where no filter is."""
    is_control = "control" in sys.argv[1:]
    for attempt in ATTEMPTS:
        if attempt.number < 0:
            said = {"outcome": "absent", "detail": "no such call on this architecture"}
        elif is_control and not attempt.control:
            said = {"outcome": "not tried", "detail": "an unfiltered kernel may load a module for it"}
        else:
            said = attempt_in_child(attempt)
        print(json.dumps({"name": attempt.name, "needs": attempt.needs, **said}), flush=True)


if __name__ == "__main__":
    main()
