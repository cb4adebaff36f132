"""Untrusted code reaches no network, and no service of the host."""

import socket
import uuid

import pytest

from tests.security.conftest import ERRNO_OF, Probe

pytestmark = pytest.mark.docker


async def test_only_interface_is_the_loopback(probe: Probe) -> None:
    assert await probe("import socket\nanswer = [name for _, name in socket.if_nameindex()]") == ["lo"]


@pytest.mark.parametrize(
    "target",
    [("1.1.1.1", 80), ("1.1.1.1", 53), ("169.254.169.254", 80), ("172.17.0.1", 2375), ("10.0.0.1", 22)],
)
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
async def test_network_is_unreachable(probe: Probe, target: tuple[str, int], kind: str) -> None:
    answer = await probe(
        f"{ERRNO_OF}\nimport socket\ns = socket.socket(socket.AF_INET, socket.{kind})\ns.settimeout(10)\n"
        f"answer = tried(s.connect, {target!r})"
    )
    assert answer == "ENETUNREACH"


async def test_ipv6_is_unreachable(probe: Probe) -> None:
    answer = await probe(
        f"{ERRNO_OF}\nimport socket\ns = socket.socket(socket.AF_INET6)\ns.settimeout(10)\n"
        "answer = tried(s.connect, ('2606:4700:4700::1111', 80))"
    )
    assert answer in {"ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}


async def test_names_do_not_resolve(probe: Probe) -> None:
    answer = await probe(
        "import socket\ntry:\n    answer = str(socket.getaddrinfo('example.com', 80))\n"
        "except socket.gaierror as error:\n    answer = 'no'"
    )
    assert answer == "no"


async def test_abstract_sockets_of_the_host_are_out_of_reach(probe: Probe) -> None:
    # Abstract Unix sockets belong to the network namespace (unix(7)); with the host's one, its services are open.
    name = f"\0aeolus-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        answer = await probe(
            f"{ERRNO_OF}\nimport socket\nanswer = tried(socket.socket(socket.AF_UNIX).connect, {name!r})"
        )
    assert answer == "ECONNREFUSED"
