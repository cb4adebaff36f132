"""Names of packages stay names: what an installer would take for more is refused before anything happens."""

import re
import threading
from datetime import timedelta
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from aeolus_sandbox import CapabilityDenied, CodeInterpreterInput, CodeInterpreterTool, SessionManager
from aeolus_sandbox.capabilities import SANDBOXED, CapabilityKind, Grants
from aeolus_sandbox.cli.image_views import parse_age
from aeolus_sandbox.engine.image_catalog import shipped_catalog
from aeolus_sandbox.engine.image_log import BuildProgress, without_addresses
from aeolus_sandbox.engine.package_images import news_of, only_builder, package_recipe
from aeolus_sandbox.engine.packages import MAX_PACKAGES, derives_from, parse_packages, takes_packages
from aeolus_sandbox.errors import ConfigurationError, EngineTimeout, ImageBuildFailed
from aeolus_sandbox.testing.local_engine import LocalEngine

NO_NAMES = [
    "numpy; rm -rf /",
    "--index-url=http://x.example/",
    "-r/etc/passwd",
    "-r /etc/passwd",
    "$(id)",
    "`id`",
    "../local",
    "./local",
    "/tmp/local.whl",
    "local.whl\n--index-url=http://x.example/",
    "git+https://x.example/a.git",
    "a @ https://x.example/a.whl",
    "a @ file:///etc/passwd",
    "https://x.example/a.whl",
    "numpy #egg=other",
    "numpy pandas",
    "numpy && id",
    "numpy|id",
    "numpy\x00",
    "numpy\n",
    "",
    " ",
    "é",
    "numpy==",
    "numpy===1.0;x",
    "-",
    "@",
]


@pytest.mark.parametrize("image", [name for name in shipped_catalog().names() if takes_packages(name)])
@pytest.mark.parametrize("bad", NO_NAMES)
def test_what_is_no_name_is_refused_for_every_language_and_said(image: str, bad: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(bad))):
        parse_packages(image, ["good", bad])


@pytest.mark.parametrize(
    ("asked", "spelled"),
    [
        ("numpy", "numpy"),
        ("numpy==1.26.4", "numpy==1.26.4"),
        ("uvicorn[standard]>=0.30,<1", "uvicorn[standard]<1,>=0.30"),
        ("Typing.Extensions ~= 4.0", "typing-extensions~=4.0"),
        ("pandas==2.2.*", "pandas==2.2.*"),
        ("torch==2.4.0+cpu", "torch==2.4.0+cpu"),
        ("a [ B , c ] != 1", "a[b,c]!=1"),
    ],
)
def test_python_packages_have_one_spelling(asked: str, spelled: str) -> None:
    assert parse_packages("python", [asked]) == (spelled,)


@pytest.mark.parametrize(
    "good", ["@scope/pkg@1.2.3", "chalk", "chalk@5", "chalk@^5.0.0", "left-pad@latest", "@a/b"]
)
def test_npm_packages_have_a_scope_and_a_version(good: str) -> None:
    assert parse_packages("deno", [good]) == (good,)


@pytest.mark.parametrize(
    "bad", ["@scope", "@/x", "a@b/c", "a@file:../x", "a@npm:b", "a/b", "a@1 || 2", "Chalk", ".x", "_x"]
)
def test_what_npm_takes_for_more_than_a_name_is_refused(bad: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(repr(bad))):
        parse_packages("deno", [bad])


def test_r_packages_are_names_alone() -> None:
    assert parse_packages("r", ["data.table", "R6"]) == ("R6", "data.table")
    for bad in ("data.table==1.0", "data-table", "zip-", "1x", "x.", "a/b"):
        with pytest.raises(ConfigurationError, match=re.escape(repr(bad))):
            parse_packages("r", [bad])


def test_the_order_and_repetitions_of_packages_do_not_matter() -> None:
    assert parse_packages("python", ["b", "a", "B"]) == parse_packages("python", ["a", "b"]) == ("a", "b")


@pytest.mark.parametrize("package", ["0_", "a.", "a-", "a[b_]", "a[b,c-]>=1", "a[.b]"])
def test_a_python_name_begins_and_ends_with_a_letter_or_digit(package: str) -> None:
    with pytest.raises(ConfigurationError, match="not the name of a package"):
        parse_packages("python", [package])


@given(st.text(max_size=60))
def test_any_text_is_refused_or_is_one_plain_word(text: str) -> None:
    try:
        (spelled,) = parse_packages("python", [text])
    except ConfigurationError:
        return
    assert re.fullmatch(r"[a-z0-9][a-zA-Z0-9._\[\],<>=!~*+-]*", spelled)
    assert "://" not in spelled
    assert parse_packages("python", [spelled]) == (spelled,)


def test_too_many_and_too_long_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=f"at most {MAX_PACKAGES}"):
        parse_packages("python", [f"p{number}" for number in range(MAX_PACKAGES + 1)])
    with pytest.raises(ConfigurationError, match="longer than"):
        parse_packages("python", ["p" * 1000])


def test_an_image_that_takes_no_packages_says_so() -> None:
    with pytest.raises(ConfigurationError, match="'base' takes no packages"):
        parse_packages("base", ["numpy"])


def test_the_input_refuses_a_bad_name_and_spells_a_good_one() -> None:
    with pytest.raises(ValidationError, match=re.escape(repr("--index-url=http://x.example/"))):
        CodeInterpreterInput(code="", packages=("--index-url=http://x.example/",))
    with pytest.raises(ValidationError):
        CodeInterpreterInput(code="", packages=("a",) * (MAX_PACKAGES + 1))
    assert CodeInterpreterInput(code="", packages=("NumPy",)).packages == ("numpy",)


async def test_packages_need_a_grant_of_their_own_and_nothing_happens_without_it() -> None:
    assert CapabilityKind.INSTALL_PACKAGES not in SANDBOXED.kinds
    tool, asked = CodeInterpreterTool(), CodeInterpreterInput(code="1", packages=("numpy",))
    async with LocalEngine() as engine, SessionManager(engine=engine) as manager:
        with pytest.raises(CapabilityDenied, match="INSTALL_PACKAGES"):
            await manager.open(tool, asked)
    assert tool.requires(CodeInterpreterInput(code="1")) == (CapabilityKind.RUN_CODE,)


async def test_an_engine_that_builds_no_images_says_so() -> None:
    grants = Grants.of(CapabilityKind.RUN_CODE, CapabilityKind.INSTALL_PACKAGES)
    asked = CodeInterpreterInput(code="1", packages=("numpy",))
    async with LocalEngine() as engine, SessionManager(engine=engine, grants=grants) as manager:
        async with await manager.open(CodeInterpreterTool(), asked) as session:
            with pytest.raises(ConfigurationError, match="builds none"):
                await session.finalize()
        with pytest.raises(ConfigurationError, match="language's own image"):
            await manager.open(CodeInterpreterTool(image="debian:bookworm"), asked)


def test_one_set_of_packages_on_one_image_has_one_reference() -> None:
    catalog = shipped_catalog()
    recipe = package_recipe(catalog, "python", ("pandas==2.2.*", "numpy"))
    assert recipe.reference == package_recipe(catalog, "python", ("numpy", "pandas ==2.2.*")).reference
    assert recipe.reference != package_recipe(catalog, "python", ("numpy", "pandas==2.1.*")).reference
    assert recipe.files["packages.txt"] == b"numpy\npandas==2.2.*\n"
    assert recipe.base is not None
    assert recipe.base.reference == catalog.reference("python")
    assert derives_from(recipe.reference, "python")
    assert not derives_from(catalog.reference("python"), "python")


@pytest.mark.parametrize("image", [name for name in shipped_catalog().names() if takes_packages(name)])
def test_no_package_stands_on_a_command_line(image: str) -> None:
    text = package_recipe(shipped_catalog(), image, ("marked",)).dockerfile
    assert "marked" not in text
    assert "packages.txt" in text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("Downloading https://u:p@h.example/a/x.whl (1 MB)", "Downloading x.whl (1 MB)"),
        (
            "Looking in indexes: https://u:p@h.example/simple, http://h.example",
            "Looking in indexes: simple, ...",
        ),
        ("HTTPSConnectionPool(host='h.example', port=443)", "HTTPSConnectionPool(host=..., port=443)"),
        ("see https://u:p@h.example:8443/simple/x/: no", "see ... no"),
    ],
)
def test_no_index_and_no_password_is_told(said: str, shown: str) -> None:
    assert without_addresses(said) == shown


def test_news_are_short_plain_and_about_the_packages() -> None:
    assert (
        news_of(BuildProgress("python-packages", "3/9", "Collecting numpy\x1b[31m"))
        == "Collecting numpy [31m"
    )
    assert news_of(BuildProgress("python-packages", "3/9", "Step 3/9 : RUN something")) is None
    assert news_of(BuildProgress("python", "3/9", "Step 3/9 : RUN x")) == "building the image python first"
    assert len(news_of(BuildProgress("python-packages", "3/9", "Collecting " + "x" * 1000)) or "") <= 200


def test_who_waits_for_another_build_can_be_cancelled_and_has_a_time_limit(tmp_path: Path) -> None:
    cancel, never = threading.Event(), threading.Event()
    cancel.set()
    with only_builder(tmp_path / "locks", "x", never, limit_s=60):
        with (
            pytest.raises(ImageBuildFailed, match="cancelled"),
            only_builder(tmp_path / "locks", "x", cancel, limit_s=60),
        ):
            pass
        with pytest.raises(EngineTimeout), only_builder(tmp_path / "locks", "x", never, limit_s=0):
            pass
    with only_builder(tmp_path / "locks", "x", never, limit_s=0):
        pass


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("90m", timedelta(minutes=90)),
        ("0", timedelta()),
    ],
)
def test_an_age_is_read_with_its_unit(text: str, age: timedelta) -> None:
    assert parse_age(text) == age


@pytest.mark.parametrize("bad", ["", "30", "-1d", "1w", "d", "1.5h"])
def test_what_is_no_age_is_refused(bad: str) -> None:
    with pytest.raises(typer.BadParameter, match="30d"):
        parse_age(bad)
