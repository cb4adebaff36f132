"""How a benchmark talks with a worker: one JSON object a line, a request in, its answer out, one after the other.

The first line out is `{"can": [...], "version": "..."}`, or `{"error": "..."}` where the peer cannot be used.
A request is `{"do": "cold"}`; its answer `{"took_ms": 1.0, ...}` or `{"error": "..."}`. `{"do": "prepare", "for": "cell"}`
opens what a later request needs, `{"do": "lives"}` waits for what was started to have ended.
The times are taken here, around the peer's own calls, so that neither imports nor this protocol are in them.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

Close = Callable[[], object]
"""Ends a sandbox as the peer's own users end it."""

ABILITIES = ("cold", "warm_command", "warm_code", "first_cell", "command", "cell", "output")
BURST = "burst"
"""Many `cold` at once, in threads: whoever can do the one can do the other."""


class Peer:
    """What a peer can do: what a class does not override, its peer cannot.

    Each method does its work to the first output, checks it, and raises where it is wrong. What it has opened for good,
    such as a pool or the session of `command` and `cell`, it opens in `prepare`, which is not timed.
    """

    package = ""
    """The distribution whose version is told; empty: none."""

    def __init__(self, image: str, gateway_image: str) -> None:
        self.image = image
        self.gateway_image = gateway_image
        self.first_piece_at: float | None = None
        """When the first piece of `output` came, where the peer streams: from then on it is measured."""

    def prepare(self, ability: str) -> None:
        """Open what the ability needs, if it is not open."""

    def cold(self) -> Close:
        """Start a sandbox, run `echo hello`, and return what ends it."""
        raise NotImplementedError

    def warm_command(self) -> Close:
        """Take a sandbox that waits, run `echo hello`, and return what gives it back."""
        raise NotImplementedError

    def warm_code(self) -> Close:
        """Take a sandbox that waits, run the code `print(1)`, and return what gives it back."""
        raise NotImplementedError

    def first_cell(self) -> Close:
        """Start a session that keeps variables, run `print(1)`, and return what ends it."""
        raise NotImplementedError

    def command(self) -> None:
        """Run `echo hello` in the open session."""
        raise NotImplementedError

    def cell(self) -> None:
        """Run `print(1)` in the open session that keeps variables."""
        raise NotImplementedError

    def output(self, size: int) -> int:
        """Run a command that prints `size` bytes in the open session, and return how many have come."""
        raise NotImplementedError

    def forget_pieces(self) -> None:
        """Note that nothing has come."""
        self.first_piece_at = None

    def note_piece(self) -> None:
        """Note that a piece of `output` has come."""
        self.first_piece_at = self.first_piece_at or time.perf_counter()

    def close(self) -> None:
        """End what is open for good."""

    def abilities(self) -> list[str]:
        """Return what this peer can do."""
        able = [name for name in ABILITIES if getattr(type(self), name) is not getattr(Peer, name)]
        return [*able, BURST] if "cold" in able else able


class Worker:
    """Answers requests with a peer's work."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._closers = ThreadPoolExecutor(max_workers=32)
        self._lives: list[Future[float]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked; a failure is an answer."""
        wanted = request["do"]
        try:
            if wanted == "lives":
                return {"lives_ms": self._ended_lives()}
            self._peer.prepare(request.get("for", wanted))
            if wanted == "prepare":
                return {}
            if wanted == BURST:
                return self._burst(request["count"])
            if wanted == "output":
                return self._output(request["bytes"])
            return self._timed(wanted)
        except Exception as error:  # noqa: BLE001 - told to the benchmark, which counts it
            return {"error": f"{type(error).__name__}: {error}"[:500]}

    def close(self) -> None:
        """End everything."""
        self._ended_lives()
        self._peer.close()
        self._closers.shutdown()

    def _timed(self, wanted: str) -> dict[str, Any]:
        began = time.perf_counter()
        close = getattr(self._peer, wanted)()
        took_ms = (time.perf_counter() - began) * 1000
        if close is not None and wanted.startswith("warm"):
            close()
        elif close is not None:
            # Many stop with a signal that a shell as PID 1 ignores, and wait ten seconds: nobody else waits with them.
            self._lives.append(self._closers.submit(_ending, close, took_ms))
        return {"took_ms": took_ms}

    def _ended_lives(self) -> list[float]:
        lives, self._lives = self._lives, []
        return [life.result() for life in lives]

    def _burst(self, count: int) -> dict[str, Any]:
        began = time.perf_counter()
        with ThreadPoolExecutor(max_workers=count) as pool:
            started = [pool.submit(self._peer.cold) for _ in range(count)]
            failures = [repr(error)[:200] for each in started if (error := each.exception()) is not None]
        took_ms = (time.perf_counter() - began) * 1000
        for each in started:
            if each.exception() is None:
                self._lives.append(self._closers.submit(_ending, each.result(), took_ms))
        self._ended_lives()
        return {"took_ms": took_ms, "failed": len(failures), "failures": failures[:3]}

    def _output(self, size: int) -> dict[str, Any]:
        before = _forget_peak()
        self._peer.forget_pieces()
        began = time.perf_counter()
        came = self._peer.output(size)
        seconds = time.perf_counter() - (self._peer.first_piece_at or began)
        assert came == size, f"{came} bytes came of {size}"
        peak = _memory_bytes("VmHWM")
        growth = None if before is None or peak is None else max(0, peak - before)
        return {"took_ms": seconds * 1000, "growth_bytes": growth}


def serve(make: Callable[[str, str], Peer]) -> None:
    """Answer requests until there are no more; the images are the program's arguments."""
    # What a peer prints must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        peer = make(*sys.argv[1:3])
        version = importlib.metadata.version(peer.package) if peer.package else ""
    except Exception as error:  # noqa: BLE001 - told to the benchmark: this peer is not available
        _say(answers, {"error": f"{type(error).__name__}: {error}"[:500]})
        return
    _say(answers, {"can": peer.abilities(), "version": version})
    worker = Worker(peer)
    try:
        for line in sys.stdin:
            _say(answers, worker.answer(json.loads(line)))
    finally:
        worker.close()


def expect(output: str, wanted: str) -> None:
    """Check what a sandbox has printed.

    Raises:
        ValueError: It is something else.
    """
    if output.strip() != wanted:
        msg = f"{output[:200]!r} was printed, not {wanted!r}"
        raise ValueError(msg)


def printing(size: int) -> str:
    """Return a shell's command line that prints so many bytes, as one line."""
    return rf"head -c {size} /dev/zero | tr '\0' x"


def _say(answers: TextIO, message: dict[str, Any]) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _ending(close: Close, took_ms: float) -> float:
    began = time.perf_counter()
    close()
    return took_ms + (time.perf_counter() - began) * 1000


def _forget_peak() -> int | None:
    """Have the kernel count this process's peak memory anew, and return what it uses now (proc_pid_clear_refs(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return None
    return _memory_bytes("VmRSS")


def _memory_bytes(field: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text("ascii")
    except OSError:
        return None
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(f"{field}:"))
