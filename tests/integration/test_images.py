"""What the image builder promises, on a real engine."""

import os
import tarfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from aeolus_sandbox.engine.docker import engine_address
from aeolus_sandbox.engine.image_catalog import BUILD_LABEL, IMAGE_NAMES, ImageCatalog, image_reference
from aeolus_sandbox.engine.image_client import ImageClient
from aeolus_sandbox.engine.images import BuildProgress, ImageBuilder
from aeolus_sandbox.errors import ConfigurationError, EngineUnavailable, ImageBuildFailed, ImageNotFound
from aeolus_sandbox.resources import guest_folder

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300), pytest.mark.xdist_group("images")]

BASE = image_reference("base")


@dataclass
class Workshop:
    """A catalog of one image that only this test knows."""

    name: str
    folder: Path
    builder: ImageBuilder
    client: ImageClient

    def write(self, dockerfile: str) -> None:
        (self.folder / "Dockerfile").write_text(dockerfile)

    @property
    def reference(self) -> str:
        return ImageCatalog(self.folder.parent, guest_folder()).reference(self.name)

    def fails(self, dockerfile: str) -> str:
        """Builds what cannot be built, and says the error after checking that no image came of it."""
        self.write(dockerfile)
        with pytest.raises(ImageBuildFailed) as caught:
            self.builder.build(self.name)
        assert [state.state for state in self.builder.list()] == ["missing"]
        assert not self.client.images(reference=f"aeolus/{self.name}")
        return str(caught.value)

    def left(self) -> list[str]:
        """Everything of this image's builds that the engine holds."""
        images = self.client.images(label=f"{BUILD_LABEL}={self.name}", intermediate=True)
        return [image["Id"] for image in images] + self.client.remove_containers(f"{BUILD_LABEL}={self.name}")


@pytest.fixture
def client() -> Iterator[ImageClient]:
    opened = ImageClient(engine_address())
    yield opened
    opened.close()


@pytest.fixture
def workshop(tmp_path: Path, client: ImageClient) -> Iterator[Workshop]:
    name = f"test-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "images" / name
    folder.mkdir(parents=True)
    (folder / "Dockerfile").write_text(f"FROM {BASE}\n")
    with ImageBuilder(catalog=ImageCatalog(folder.parent, guest_folder())) as builder:
        made = Workshop(name, folder, builder, client)
        yield made
        builder.remove(name)
        assert made.left() == []


def test_a_failed_step_is_named_with_its_exit_code_and_last_lines(workshop: Workshop) -> None:
    said = workshop.fails(f'FROM {BASE}\nRUN echo "Successfully built abc" && exit 7\n')
    assert 'RUN echo "Successfully built abc" && exit 7' in said
    assert "exit code 7" in said
    assert said.endswith("Successfully built abc")


@pytest.mark.parametrize(
    ("last_line", "expected"),
    [
        ("COPY missing /x", "COPY missing /x"),
        ("FROM no-such-image-zz", "FROM no-such-image-zz"),
        ("RUN apt-get install -y no-such-package-zz", "Unable to locate package no-such-package-zz"),
    ],
)
def test_what_cannot_be_had_fails_the_build_by_name(
    workshop: Workshop, last_line: str, expected: str
) -> None:
    assert expected in workshop.fails(f"FROM {BASE}\nUSER root\n{last_line}\n")


def test_an_upper_case_name_is_refused_before_the_engine_is_asked(workshop: Workshop) -> None:
    (workshop.folder.parent / "Upper").mkdir()
    (workshop.folder.parent / "Upper" / "Dockerfile").write_text(f"FROM {BASE}\n")
    with pytest.raises(ConfigurationError, match=r"'Upper'.*lower-case"):
        workshop.builder.build("Upper")


def test_the_second_identical_build_uses_the_cache(workshop: Workshop) -> None:
    workshop.write(f"FROM {BASE}\nRUN head -c 16 /dev/urandom >/workspace/different-every-time\n")
    first = workshop.builder.build(workshop.name)
    assert first.state == "current"
    assert workshop.builder.build(workshop.name) == first
    assert workshop.builder.build(workshop.name, rebuild=True) == first


def test_a_cancelled_build_leaves_nothing(workshop: Workshop) -> None:
    workshop.write(f"FROM {BASE}\nRUN echo kept >/workspace/a\nRUN echo begun && sleep 100\n")
    cancel = threading.Event()

    def cancel_when_begun(progress: BuildProgress) -> None:
        if progress.text == "begun":
            cancel.set()

    started = time.monotonic()
    with pytest.raises(ImageBuildFailed, match=r"it was cancelled"):
        workshop.builder.build(workshop.name, progress=cancel_when_begun, cancel=cancel)
    assert time.monotonic() - started < 30
    assert workshop.left() == []


def test_a_build_stopped_by_ctrl_c_leaves_nothing(workshop: Workshop) -> None:
    workshop.write(f"FROM {BASE}\nRUN echo kept >/workspace/a\nRUN echo begun && sleep 100\n")

    def interrupt_when_begun(progress: BuildProgress) -> None:
        if progress.text == "begun":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.builder.build(workshop.name, progress=interrupt_when_begun)
    assert workshop.left() == []


def test_a_changed_file_makes_the_image_stale_and_only_the_stale_one_can_be_removed(
    workshop: Workshop,
) -> None:
    old = workshop.builder.build(workshop.name).reference
    workshop.write(f"FROM {BASE}\nLABEL changed=yes\n")
    assert [(state.reference, state.state) for state in workshop.builder.list()] == [(old, "stale")]
    new = workshop.builder.build(workshop.name).reference
    assert {state.reference: state.state for state in workshop.builder.list()} == {
        new: "current",
        old: "stale",
    }
    assert workshop.builder.remove(workshop.name, stale_only=True) == [old]
    assert [(state.reference, state.state) for state in workshop.builder.list()] == [(new, "current")]


def test_removing_an_image_spares_what_somebody_built_on_it(workshop: Workshop, client: ImageClient) -> None:
    ours = workshop.builder.build(workshop.name).reference
    theirs = f"derived-{workshop.name}:latest"
    context = BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        text = f"FROM {ours}\nLABEL theirs=yes\n".encode()
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(text)
        tar.addfile(entry, BytesIO(text))
    context.seek(0)
    client.build(
        context, reference=theirs, arguments={}, labels={}, feed=lambda _: None, cancel=threading.Event()
    )
    try:
        assert workshop.builder.remove(workshop.name) == [ours]
        assert client.images(reference=theirs)
    finally:
        client.remove_image(theirs)


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_shipped_images_keep_every_promise(name: str) -> None:
    with ImageBuilder() as builder:
        bundle = os.environ.get("SSL_CERT_FILE")
        assert builder.build(name, ca_bundle=Path(bundle) if bundle else None).state == "current"
        checks = builder.verify(name)
    assert [check for check in checks if not check.ok] == []
    names = {check.name for check in checks}
    assert {"runs as uid 10001", "no setuid, setgid or capability file", "ran all of its checks"} <= names
    if name == "python":
        assert {
            "imports the guest",
            "draws a plot without a warning",
            "uses the font cache of the image",
        } <= names


def test_verify_notices_what_was_planted(workshop: Workshop) -> None:
    certificate = "'-----BEGIN CERTIFICATE-----' planted '-----END CERTIFICATE-----'"
    capability = (
        "os.setxattr('/usr/bin/head', 'security.capability', bytes.fromhex('0100000200200000' + '00' * 12))"
    )
    workshop.write(
        f"FROM {image_reference('shell')}\nUSER root\n"
        "RUN cp /usr/bin/cat /usr/bin/planted && chmod u+s /usr/bin/planted && mkdir -m 2755 /planted\n"
        f'RUN python3 -c "import os; {capability}"\n'
        f"RUN printf '%s\\n' {certificate} >>/etc/ssl/certs/ca-certificates.crt && echo >/etc/pip.conf\n"
        "RUN sed -i 's/^root:[^:]*:/root:$y$secret:/' /etc/shadow\n"
        "ENV PIP_INDEX_URL=planted\n"
    )
    workshop.builder.build(workshop.name)
    failed = {check.name: check.detail for check in workshop.builder.verify(workshop.name) if not check.ok}
    assert set(failed["no setuid, setgid or capability file"].split(", ")) == {
        "usr/bin/planted",
        "planted",
        "usr/bin/head",
    }
    assert failed["nothing of the build is left"] == "etc/pip.conf"
    assert failed["no certificate of the host"] == "1 in the bundle"
    assert failed["no password"] == "root"
    assert failed["no setting of the host"] == "PIP_INDEX_URL=planted"


def test_verify_notices_checks_that_fail_or_do_not_end_well(workshop: Workshop) -> None:
    (workshop.folder / "verify").write_text("echo 'fail has rg: not found'\nexit 3\n")
    workshop.builder.build(workshop.name)
    failed = {check.name: check.detail for check in workshop.builder.verify(workshop.name) if not check.ok}
    assert failed["has rg"] == "not found"
    assert "ran all of its checks" in failed


def test_verify_of_an_image_that_was_not_built_says_so(workshop: Workshop) -> None:
    with pytest.raises(ImageNotFound, match=workshop.name):
        workshop.builder.verify(workshop.name)


def test_certificates_given_to_a_build_do_not_stay_in_the_image(workshop: Workshop, tmp_path: Path) -> None:
    marker = uuid.uuid4().hex
    bundle = tmp_path / "bundle.crt"
    bundle.write_text(f"# {marker}\n")
    workshop.write(
        f"FROM {BASE} AS build\nUSER root\nCOPY build-ca.crt /build/ca.crt\n"
        f"RUN grep -q {marker} /build/ca.crt && seal\nFROM scratch\nCOPY --from=build / /\n"
    )
    state = workshop.builder.build(workshop.name, ca_bundle=bundle)
    with workshop.client.files(state.reference) as tar:
        holding = [
            member.name
            for member in tar
            if member.isfile() and (file := tar.extractfile(member)) and marker.encode() in file.read()
        ]
    assert holding == []
    assert [
        check.detail for check in workshop.builder.verify(workshop.name) if "build is left" in check.name
    ] == [""]


class FakeDaemon(BaseHTTPRequestHandler):
    """An engine that writes down which images it is asked to pull."""

    asked: list[dict[str, list[str]]]

    def do_GET(self) -> None:
        self._answer(b'{"ApiVersion": "1.41"}')

    def do_POST(self) -> None:
        self.asked.append(parse_qs(urlsplit(self.path).query))
        self._answer(b'{"status": "pulled"}\n')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Says nothing."""

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def fake_daemon() -> Iterator[str]:
    FakeDaemon.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeDaemon)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"tcp://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_pull_without_a_tag_asks_for_latest_and_no_other(fake_daemon: str) -> None:
    with ImageBuilder(fake_daemon) as builder:
        builder.pull("debian")
        builder.pull("host.example:5000/a/b:1.2")
    assert FakeDaemon.asked == [
        {"fromImage": ["debian"], "tag": ["latest"]},
        {"fromImage": ["host.example:5000/a/b"], "tag": ["1.2"]},
    ]


def test_no_engine_is_said_with_its_address_and_what_to_do(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/none.sock"
    with pytest.raises(EngineUnavailable, match=r"none\.sock.*scripts/setup"), ImageBuilder(address):
        pass
