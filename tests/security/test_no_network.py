"""Untrusted code reaches no network, and no service of the host."""

import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool, SessionManager
from tests.security.conftest import ERRNO_OF, Probe

pytestmark = pytest.mark.docker


@pytest.fixture
async def kernels() -> AsyncIterator[SessionManager]:
    async with SessionManager() as manager:
        yield manager


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


async def test_loopback_and_its_name_work(probe: Probe) -> None:
    answer = await probe(
        "import socket\nserver = socket.create_server(('localhost', 0))\n"
        "client = socket.create_connection(('localhost', server.getsockname()[1]), timeout=10)\n"
        "client.sendall(b'through')\nanswer = server.accept()[0].recv(10).decode()"
    )
    assert answer == "through"


async def test_nothing_of_the_hosts_names_is_shown(probe: Probe) -> None:
    read = (
        "from pathlib import Path\nanswer = [Path(p).read_text() for p in ('/etc/hosts', '/etc/resolv.conf')]"
    )
    assert await probe(read) == ["", ""]


async def test_network_namespace_is_not_the_hosts(probe: Probe) -> None:
    answer = await probe("import os\nanswer = os.readlink('/proc/self/ns/net')")
    assert answer.startswith("net:[")
    assert answer != str(Path("/proc/self/ns/net").readlink())


async def test_sandboxes_do_not_reach_each_other(kernels: SessionManager) -> None:
    name = f"\0aeolus-{uuid.uuid4().hex}"
    listen = f"import socket\nheld = socket.socket(socket.AF_UNIX)\nheld.bind({name!r})\nheld.listen()\nprint('listens')"
    tcp = "\nweb = socket.create_server(('127.0.0.1', 18080))"
    connect = (
        f"import socket\nfor family, to in ((socket.AF_UNIX, {name!r}), (socket.AF_INET, ('127.0.0.1', 18080))):\n"
        "    try:\n        socket.socket(family).connect(to)\n        print('reached', to)\n"
        "    except ConnectionRefusedError:\n        print('refused')"
    )
    said = []
    for session_id, code in (("one", listen + tcp), ("other", connect)):
        asked = CodeInterpreterInput(code=code, session_id=session_id)
        async with await kernels.open(CodeInterpreterTool(), asked) as session:
            said.append("".join([chunk.as_text() async for chunk in session if chunk.stream == "stdout"]))
    assert said == ["listens\n", "refused\nrefused\n"]


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
