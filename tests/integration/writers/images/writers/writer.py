"""Drives nginx and logrotate in their container: answers requests in JSON lines on a Unix socket.

Each request to nginx has a number, which goes up by one and is in the path, so that what is in the logs can be compared
with what was sent. A request to this program is an object with `do`, the name of a function of `OPERATIONS`, and its
arguments; the answer is an object, with `error` where it has failed.
"""

import gzip
import http.client
import json
import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

SOCKET: Final = "/run/control/writer.sock"
LOGS: Final = Path("/var/log")
PATIENCE_S: Final = 60.0
LIFETIME_S: Final = 1800.0
"""After which the program ends by itself, should nobody have stopped it."""
_CLOCK_LAG_S: Final = 0.05
"""More than the clock of time(2), which logrotate reads, is behind: it goes on with the kernel's ticks."""
WWW_DATA: Final = 33
ADM: Final = 4
NUMBER: Final = re.compile(rb"/n/(\d+) HTTP")
# What real clients send: with quotes, other alphabets, what is no UTF-8, and nothing.
AGENTS: Final = (
    b"Mozilla/5.0 (X11; Linux x86_64) Probe/3.1",
    b'Tablet 10" (Linux) \\o/',
    "Zähler/1 (für Ø)".encode(),
    b"latin-1 caf\xe9",
    None,
)
CLIENTS: Final = (b"192.0.2.7", b"2001:db8::7f:1", b"198.51.100.23")

NGINX: Final = """
user www-data;
worker_processes {workers};
pid /run/{name}.pid;
error_log {folder}/error.log notice;
events {{ worker_connections 64; }}
http {{
  log_format json escape=json '{{"time":"$time_iso8601","client":"$remote_addr","request":"$request",'
    '"status":$status,"bytes":$body_bytes_sent,"agent":"$http_user_agent","took_s":$request_time}}';
  access_log {folder}/access.log {form};
  set_real_ip_from 127.0.0.1;
  real_ip_header X-Real-IP;
  keepalive_requests 1000000;
  limit_req_zone $host zone=slow:64k rate=1r/m;
  server {{
    listen 127.0.0.1:{port};
    location / {{ return 200 "ok\\n"; }}
    location /missing/ {{ root /nonexistent; }}
    location /limited/ {{ limit_req zone=slow; limit_req_log_level warn; empty_gif; }}
  }}
}}
"""
LOGROTATE: Final = """
{folder}/*.log {{
  rotate 1000
  missingok
  {directives}
  sharedscripts
  postrotate
    {postrotate}
  endscript
}}
"""


class Site:
    """One nginx with a log folder of its own."""

    def __init__(
        self, name: str, port: int, *, form: str, workers: int, directives: list[str], debian: bool
    ) -> None:
        self.port = port
        self.workers = workers
        self.numbers = 0
        self.folder = LOGS / name
        self._copies = "copytruncate" in directives
        self._dated = "dateext" in directives
        self._counting = threading.Condition()
        self._between_requests = threading.Lock()
        self._rotation = Path("/etc/logrotate.d/nginx") if debian else Path(f"/run/{name}.logrotate")
        self._state = f"/run/{name}.state"
        self._rotated_at = 0
        if not debian:
            after = ":" if self._copies else f"kill -USR1 $(cat /run/{name}.pid)"
            how = "\n  ".join([*directives, *([] if self._copies else ["create 0640 www-data adm"])])
            self._rotation.write_text(LOGROTATE.format(folder=self.folder, directives=how, postrotate=after))
        self._start(name, form)

    def serve(self, count: int, kind: str = "") -> None:
        """Send requests to `/KIND/n/NUMBER`, one after the other, and wait until they are in the log."""
        with self._connection(f"{kind}/n/") as send:
            for _ in range(count):
                send()
        self.wait_logged()

    def rotate(self, *, pauses: bool = False) -> None:
        """Run logrotate once; with `pauses`, no request is under way meanwhile."""
        while self._dated and _second(late_s=_CLOCK_LAG_S) <= self._rotated_at:
            time.sleep(0.02)  # of two rotations in one second, the second one's names are taken
        command = ["logrotate", "--force", "--state", self._state, str(self._rotation)]
        if pauses:
            with self._between_requests:
                self.wait_logged()
                _run(command)
        else:
            _run(command)
        self._rotated_at = _second()

    def serve_and_rotate(
        self, rotations: int, at_least: int, *, pauses: bool = False, per_second: float = 0
    ) -> None:
        """Rotate some times while requests are sent, with at least so many of them before, between and after."""
        ending = threading.Event()
        loads = [threading.Thread(target=self._load, args=(ending, per_second)) for _ in range(self.workers)]
        for load in loads:
            load.start()
        try:
            for _ in range(rotations):
                self._wait_served(at_least)
                self.rotate(pauses=pauses)
            self._wait_served(at_least)
        finally:
            ending.set()
            for load in loads:
                load.join()
        self.wait_logged()

    def logged(self) -> list[list[int]]:
        """Return the numbers in each of the access logs that there are, the oldest first."""
        return [
            [int(number) for number in NUMBER.findall(_content(path))]
            for path in sorted(self.folder.glob("access.log*"), key=_age)
        ]

    def wait_logged(self) -> None:
        """Wait until all lines are written: nginx answers first, and writes then."""
        if self.workers == 1:  # which writes its lines in the order of its requests
            last = b"/n/%d HTTP" % self.numbers
            _wait(lambda: self.numbers == 0 or last in self._ends(), "nginx to write its last line")
        else:
            _wait(lambda: sum(map(len, self.logged())) == self.numbers, "nginx to write all lines")

    def _ends(self) -> bytes:
        return b"".join(
            path.read_bytes()[-4096:] for path in self.folder.glob("access.log*") if path.suffix != ".gz"
        )

    def _start(self, name: str, form: str) -> None:
        self.folder.mkdir(mode=0o755)
        os.chown(self.folder, 0, ADM)
        for log in ("access.log", "error.log"):  # as Debian's package makes them
            path = self.folder / log
            path.touch()
            os.chown(path, WWW_DATA, ADM)
            path.chmod(0o640)
        config = Path(f"/run/{name}.conf")
        config.write_text(
            NGINX.format(name=name, folder=self.folder, port=self.port, workers=self.workers, form=form)
        )
        _run(["nginx", "-c", str(config)])

    def _load(self, ending: threading.Event, per_second: float) -> None:
        with self._connection() as send:
            while not ending.is_set():
                send()
                if per_second:
                    time.sleep(1 / per_second)

    @contextmanager
    def _connection(self, path: str = "/n/") -> Iterator[Callable[[], None]]:
        """Open a connection; what it gives sends one request and waits for its answer."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

        def send() -> None:
            with self._between_requests:
                number = self._next()
                client.putrequest("GET", f"{path}{number}", skip_accept_encoding=True)
                if (agent := AGENTS[number % len(AGENTS)]) is not None:
                    client.putheader("User-Agent", agent)
                client.putheader("X-Real-IP", CLIENTS[number % len(CLIENTS)])
                client.endheaders()
                client.getresponse().read()

        try:
            yield send
        finally:
            client.close()

    def _next(self) -> int:
        with self._counting:
            self.numbers += 1
            self._counting.notify_all()
            return self.numbers

    def _wait_served(self, more: int) -> None:
        wanted = self.numbers + more
        with self._counting:
            if not self._counting.wait_for(lambda: self.numbers >= wanted, PATIENCE_S):
                raise TimeoutError(f"{self.numbers} of {wanted} requests were answered")


SITES: Final[dict[str, Site]] = {}


def begin(
    name: str,
    form: str = "combined",
    workers: int = 1,
    directives: tuple[str, ...] = (),
    *,
    debian: bool = False,
) -> None:
    """Start an nginx whose logs are in `/var/log/NAME`, and say how logrotate treats them.

    With `debian` that is the file of Debian's package, which is for `/var/log/nginx` alone.
    """
    port = 8000 + len(SITES)
    SITES[name] = Site(name, port, form=form, workers=workers, directives=list(directives), debian=debian)


OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "begin": begin,
    "serve": lambda name, **how: SITES[name].serve(**how),
    "rotate": lambda name, **how: SITES[name].rotate(**how),
    "serve_and_rotate": lambda name, **how: SITES[name].serve_and_rotate(**how),
    "logged": lambda name: SITES[name].logged(),
}


class Handler(socketserver.StreamRequestHandler):
    """One request and its answer."""

    def handle(self) -> None:
        """Do what is asked for."""
        asked = json.loads(self.rfile.readline())
        try:
            answer = {"result": OPERATIONS[asked.pop("do")](**asked)}
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            answer = {"error": f"{type(error).__name__}: {error}"}
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class Server(socketserver.ThreadingUnixStreamServer):
    """Answers each request in a thread of its own."""

    daemon_threads = True


def _second(*, late_s: float = 0.0) -> int:
    return int(datetime.now(UTC).timestamp() - late_s)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if ended.returncode:
        raise RuntimeError(f"{command} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")


def _wait(is_met: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_met():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE_S:g} s for {what}")
        time.sleep(0.005)


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _age(path: Path) -> int:
    """Return what the oldest log has the least of: numbers go up with the age, and dates down."""
    numbers = re.findall(r"\d+", path.name)
    if not numbers:
        return sys.maxsize
    return int(numbers[-1]) if "-" in path.name else -int(numbers[-1])


def _end(*_: object) -> None:
    sys.exit()


def main() -> None:
    """Serve until the container is stopped; the logs belong to users that whoever runs the tests is not, and go."""
    signal.signal(signal.SIGTERM, _end)
    lifetime = threading.Timer(LIFETIME_S, os._exit, [1])
    lifetime.daemon = True
    lifetime.start()
    try:
        with Server(SOCKET, Handler) as server:
            os.chmod(SOCKET, 0o666)  # noqa: PTH101 - whoever runs the tests
            server.serve_forever()
    finally:
        Path(SOCKET).unlink()
        for folder in LOGS.iterdir():
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
