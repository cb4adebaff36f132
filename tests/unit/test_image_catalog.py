"""What the image catalog promises: a reference that changes with every input, and names that mean one thing."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.engine.image_catalog import (
    IMAGE_NAMES,
    ImageCatalog,
    image_reference,
    resolve_image,
    shipped_catalog,
    split_reference,
)
from aeolus_sandbox.engine.image_checks import environment_check, reported_checks
from aeolus_sandbox.engine.image_log import BuildLog, BuildProgress
from aeolus_sandbox.errors import ConfigurationError
from aeolus_sandbox.resources import guest_folder, shipped_folder


@pytest.fixture
def catalog(tmp_path: Path) -> ImageCatalog:
    """Two images, one built on the other and with a guest."""
    files = {
        "images/ground/Dockerfile": "ARG ROOTFS=debian:bookworm-slim\nFROM ${ROOTFS}\n",
        "images/ground/seal": "#!/bin/sh\n",
        "images/tower/Dockerfile": "ARG BASE=ground\nFROM ${BASE}\nCOPY guest/ /opt/\n",
        "images/other/Dockerfile": "FROM scratch\n",
        "guest/frames.py": "FRAMES = 1\n",
        "guest/__pycache__/frames.cpython-311.pyc": "compiled",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return ImageCatalog(tmp_path / "images", tmp_path / "guest")


def test_shipped_images_are_the_named_ones() -> None:
    assert shipped_catalog().names() == IMAGE_NAMES
    assert [recipe.name for recipe in shipped_catalog().recipe("python").lineage] == [
        "base",
        "kernel",
        "python",
    ]
    assert "guest/frames.py" in shipped_catalog().recipe("python").files
    assert "guest/frames.py" not in shipped_catalog().recipe("kernel").files
    for name in IMAGE_NAMES:
        assert re.fullmatch(rf"aeolus/{name}:[0-9a-f]{{12}}", image_reference(name))


def test_what_images_share_stands_where_it_is_included(tmp_path: Path) -> None:
    files = {
        "images/one/Dockerfile": "FROM x\n# include: part\nRUN one\n",
        "images/shared/part/Dockerfile": "COPY tool /\n",
        "images/shared/part/tool": "shared",
        "guest/frames.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    catalog = ImageCatalog(tmp_path / "images", tmp_path / "guest")
    assert catalog.names() == ("one",)
    assert catalog.recipe("one").dockerfile == "FROM x\nCOPY tool /\nRUN one\n"
    assert catalog.recipe("one").files["tool"] == b"shared"
    before = catalog.reference("one")
    (tmp_path / "images/shared/part/tool").write_text("changed")
    assert catalog.reference("one") != before


@pytest.mark.parametrize(
    "changed",
    ["images/tower/Dockerfile", "images/ground/Dockerfile", "images/ground/seal", "guest/frames.py"],
)
def test_one_changed_byte_of_any_input_changes_the_reference(catalog: ImageCatalog, changed: str) -> None:
    before, other = catalog.reference("tower"), catalog.reference("other")
    path = catalog.guest.parent / changed
    path.write_bytes(path.read_bytes() + b"#")
    assert catalog.reference("tower") != before
    assert catalog.reference("other") == other


def test_added_and_renamed_files_change_the_reference(catalog: ImageCatalog) -> None:
    seen = {catalog.reference("tower")}
    extra = catalog.folder / "tower" / "extra"
    extra.write_bytes(b"")
    seen.add(catalog.reference("tower"))
    extra.rename(extra.with_name("renamed"))
    seen.add(catalog.reference("tower"))
    assert len(seen) == 3


def test_times_and_compiled_files_do_not_change_the_reference(catalog: ImageCatalog) -> None:
    before = catalog.reference("tower")
    (catalog.guest / "__pycache__" / "frames.cpython-311.pyc").write_bytes(b"compiled again")
    (catalog.folder / "tower" / "Dockerfile").touch()
    assert catalog.reference("tower") == before


def test_bytes_that_move_between_two_files_change_the_reference(catalog: ImageCatalog) -> None:
    (catalog.folder / "other" / "a").write_bytes(b"xy")
    (catalog.folder / "other" / "b").write_bytes(b"z")
    before = catalog.reference("other")
    (catalog.folder / "other" / "a").write_bytes(b"x")
    (catalog.folder / "other" / "b").write_bytes(b"yz")
    assert catalog.reference("other") != before


@pytest.mark.parametrize("name", ["Ground", "nothing", "", "../images/ground", "tower/../ground"])
def test_unknown_image_names_are_refused_and_the_known_ones_named(catalog: ImageCatalog, name: str) -> None:
    with pytest.raises(ConfigurationError, match="ground, other, tower"):
        catalog.recipe(name)


@pytest.mark.parametrize(
    ("given_reference", "resolved"),
    [
        ("debian", "debian:latest"),
        ("debian:bookworm-slim", "debian:bookworm-slim"),
        ("python:3.12", "python:3.12"),
        ("library/python", "library/python:latest"),
        ("localhost:5000/team/tool", "localhost:5000/team/tool:latest"),
        ("host.example:5000/a/b__c:V1.2", "host.example:5000/a/b__c:V1.2"),
        ("debian@sha256:" + "a" * 64, "debian@sha256:" + "a" * 64),
        ("debian:x@sha256:" + "a" * 64, "debian:x@sha256:" + "a" * 64),
        ("sha256:" + "0" * 64, "sha256:" + "0" * 64),
    ],
)
def test_a_reference_stays_what_it_is_and_no_tag_means_latest(given_reference: str, resolved: str) -> None:
    assert resolve_image(given_reference) == resolved


@pytest.mark.parametrize("name", IMAGE_NAMES)
def test_a_catalog_name_gives_our_reference(name: str) -> None:
    assert resolve_image(name) == shipped_catalog().reference(name)


@pytest.mark.parametrize(
    "bad",
    [
        "",
        " ",
        "Debian",
        "team/Tool:1",
        "a b",
        "debian:",
        ":latest",
        "debian\n",
        "debian:a\x00",
        "-x",
        "a//b",
        "a/",
        "é",
        "debian:" + "x" * 129,
        "debian@sha256:12",
        "--privileged",
        "$(id)",
    ],
)
def test_what_is_no_reference_is_refused_before_any_io(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(bad))):
        resolve_image(bad)


@given(st.text(max_size=40))
def test_any_text_is_refused_or_names_exactly_one_image(text: str) -> None:
    try:
        resolved = resolve_image(text)
    except ConfigurationError:
        return
    repository, tag = split_reference(resolved)
    assert resolved.startswith(repository)
    assert tag
    assert repository == repository.lower()
    assert not re.search(r"[\s\x00-\x1f\x7f]", resolved)
    assert resolve_image(resolved) == resolved


def test_shipped_folders_are_found() -> None:
    assert (shipped_folder("images") / "base" / "Dockerfile").is_file()
    assert (guest_folder() / "frames.py").is_file()


def test_a_step_cannot_forge_the_end_of_a_build() -> None:
    log = BuildLog("tower")
    log.feed({"stream": "Step 2/3 : RUN echo\n"})
    log.feed({"stream": "Successfully built abc\n"})
    log.feed(
        {"error": "The command returned 7", "errorDetail": {"code": 7, "message": "The command returned 7"}}
    )
    assert not log.image_id
    assert log.failure(log.error) == (
        "the build of image 'tower' failed at step 2/3 (RUN echo): exit code 7; its last lines:\n  Successfully built abc"
    )


def test_progress_names_image_step_and_text_without_the_engines_colours() -> None:
    seen: list[BuildProgress] = []
    log = BuildLog("tower", seen.append)
    log.feed({"status": "Pulling from library/debian"})
    log.feed({"stream": "Step 1/2 : FROM debian\n"})
    log.feed({"stream": "\x1b[91mwarned\n\x1b[0m"})
    log.feed({"aux": {"ID": "sha256:" + "b" * 64}})
    assert seen == [
        BuildProgress("tower", "pull", "Pulling from library/debian"),
        BuildProgress("tower", "1/2", "Step 1/2 : FROM debian"),
        BuildProgress("tower", "1/2", "warned"),
    ]
    assert log.image_id == "sha256:" + "b" * 64


def test_settings_of_the_host_in_the_environment_are_noticed() -> None:
    assert environment_check(["PATH=/bin", "LANG=C"]).ok
    for variable in ("PIP_INDEX_URL=x", "https_proxy=x", "SSL_CERT_FILE=x", "REQUESTS_CA_BUNDLE=x"):
        assert not environment_check(["PATH=/bin", variable]).ok


def test_reported_checks_are_read_line_by_line() -> None:
    text = "noise\nok runs as uid 10001\nfail has rg: not found: rg\nokay no\n"
    checks = [(check.name, check.ok, check.detail) for check in reported_checks(text)]
    assert checks == [("runs as uid 10001", True, ""), ("has rg", False, "not found: rg")]
