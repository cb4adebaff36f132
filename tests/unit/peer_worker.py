"""A peer for tests: it does what its arguments say, through the protocol that the real ones speak."""

import sys
import time

from benchmarks.peer_workers.protocol import Close, Peer, serve


class FakePeer(Peer):
    """Runs nothing."""

    def cold(self) -> Close:
        print("what a library prints itself")
        if self.image == "fails":
            msg = "no such image"
            raise LookupError(msg)
        return lambda: time.sleep(0.05)

    def command(self) -> None:
        if self.image == "hangs":
            time.sleep(600)
        if self.image == "ends":
            sys.exit("the engine is gone")

    def output(self, size: int) -> int:
        return size - 1 if self.image == "loses" else size


def make(image: str, gateway_image: str) -> Peer:
    if image == "refuses":
        msg = "no engine answers"
        raise ConnectionError(msg)
    return FakePeer(image, gateway_image)


if __name__ == "__main__":
    serve(make)
