"""Packages in derived images, on a real engine: built once with network, found at once, used without, and removable.

The tests share a few tiny sets of packages, so that few images are built.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from aeolus_sandbox import (
    CapabilityKind,
    ConfigurationError,
    Grants,
    ImageBuildFailed,
    SessionManager,
)
from aeolus_sandbox.engine.docker import engine_address
from aeolus_sandbox.engine.image_catalog import BUILD_LABEL
from aeolus_sandbox.engine.image_client import ImageClient
from aeolus_sandbox.engine.package_images import PACKAGES_LABEL, PackageImage, PackageImageBuilder
from tests.integration.code_runs import CodeSession, open_code

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), pytest.mark.xdist_group("images")]

PATIENCE_S = 500.0
GRANTS = Grants.of(CapabilityKind.RUN_CODE, CapabilityKind.INSTALL_PACKAGES)
ASKED = {"python": ("humanize==4.9.*",), "r": ("zoo",), "javascript": ("chalk@5.3.0", "is-odd")}
OBTAIN = """
import sys
from pathlib import Path
from aeolus_sandbox.engine.package_images import PackageImageBuilder
with PackageImageBuilder() as builder:
    said = []
    reference = builder.obtain("python", ("six<1.17,>=1.16",), locks=Path(sys.argv[1]), progress=lambda each: said.append(each.text))
    print(reference, any("Successfully installed six" in each for each in said))
"""


@pytest.fixture(scope="module")
def builder() -> Iterator[PackageImageBuilder]:
    """Give a builder; the derived images that these tests made go at the end."""
    with PackageImageBuilder() as opened:
        before = {each.reference for each in opened.derived()}
        yield opened
        made = [each for each in opened.derived() if each.reference not in before]
        assert all(opened.discard(each) for each in made)


@pytest.fixture
def client() -> Iterator[ImageClient]:
    opened = ImageClient(engine_address())
    yield opened
    opened.close()


@pytest.fixture
async def installing(builder: PackageImageBuilder) -> AsyncIterator[SessionManager]:
    """Give a manager that may have packages installed."""
    async with SessionManager(grants=GRANTS) as opened:
        yield opened


def newest(builder: PackageImageBuilder, packages: tuple[str, ...]) -> PackageImage:
    """Return the newest image with these packages; there are others where the guest's code has changed."""
    return max(
        (each for each in builder.derived() if each.packages == packages), key=lambda each: each.created
    )


def unfinished(client: ImageClient) -> list[str]:
    """Return what is left of builds with packages, but for what they all share."""
    labels = [f"{BUILD_LABEL}=python-packages", f"{PACKAGES_LABEL}=unfinished"]
    return [image["Id"] for image in client.images(label=labels, intermediate=True)]


async def ran(session: CodeSession) -> tuple[str, list[str]]:
    """Return what the code printed, and the news that came before it."""
    async with asyncio.timeout(PATIENCE_S), session:
        chunks = [chunk async for chunk in session]
        result = await session.finalize()
    assert result.success, result
    news = [chunk.content for chunk in chunks if chunk.stream == "status"]
    return "".join(chunk.content for chunk in chunks if chunk.stream == "stdout"), news


async def run(manager: SessionManager, code: str, **settings: Any) -> tuple[str, list[str]]:
    """Run a piece of code to its end, however long its image takes."""
    return await ran(await open_code(manager, code, **settings))


async def test_a_set_of_packages_is_built_once_with_news_of_it_and_found_at_once_by_every_manager(
    installing: SessionManager, builder: PackageImageBuilder, tmp_path: Path
) -> None:
    packages = ASKED["python"]
    for each in await asyncio.to_thread(builder.derived, "python"):
        if each.packages == packages:
            assert await asyncio.to_thread(builder.discard, each)
    code = "import humanize, numpy; print(humanize.__version__, humanize.intcomma(12345))"
    said, news = await run(installing, code, packages=packages)
    assert said.startswith("4.9.")
    assert said.endswith(" 12,345\n")
    assert news[0] == "adding humanize==4.9.* to the image python"
    assert news[-1].startswith("Successfully installed humanize-4.9.")
    assert not any("://" in each for each in news)

    made = await asyncio.to_thread(newest, builder, packages)
    async with SessionManager(grants=GRANTS, state_path=tmp_path / "state.db") as another:
        assert await run(another, code, packages=("Humanize == 4.9.*",)) == (said, [])
    used = await asyncio.to_thread(newest, builder, packages)
    assert (used.reference, used.created) == (made.reference, made.created)
    assert used.last_used > made.last_used


@pytest.mark.parametrize(
    ("language", "image", "code", "printed"),
    [
        (
            "python",
            "python",
            "import humanize, os; print(humanize.intcomma(1234), os.listdir('/sys/class/net'))",
            "1,234 ['lo']\n",
        ),
        ("r", "r", "suppressMessages(library(zoo)); cat(rollmean(1:5, 3))", "2 3 4"),
        (
            "javascript",
            "deno",
            "import isOdd from 'npm:is-odd'; import chalk from 'npm:chalk@5.3.0'; console.log(isOdd(3), typeof chalk.red)",
            "true function\n",
        ),
    ],
)
async def test_the_packages_of_a_language_work_without_network_and_their_image_keeps_every_promise(
    installing: SessionManager,
    builder: PackageImageBuilder,
    language: str,
    image: str,
    code: str,
    printed: str,
) -> None:
    said, _news = await run(installing, code, language=language, packages=ASKED[language])
    assert said == printed
    made = await asyncio.to_thread(newest, builder, ASKED[language])
    assert made.image == image
    checks = await asyncio.to_thread(builder.verify_packages, made)
    assert [check for check in checks if not check.ok] == []
    assert {"has its packages", "nothing of the build is left", "no setting of the host"} <= {
        check.name for check in checks
    }


@pytest.mark.parametrize(
    ("packages", "said"),
    [
        (
            ("no-such-package-of-anybody-zz",),
            "No matching distribution found for no-such-package-of-anybody-zz",
        ),
        (("docopt==0.6.2",), "No matching distribution found for docopt==0.6.2"),  # it has no wheel
        (("pyzmq<20",), "pyzmq<20"),  # what the guest program needs stays as it is
    ],
)
def test_packages_that_cannot_be_had_are_named_in_the_installers_words_and_leave_nothing(
    builder: PackageImageBuilder, client: ImageClient, tmp_path: Path, packages: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ImageBuildFailed) as caught:
        builder.obtain("python", packages, locks=tmp_path / "locks")
    message = str(caught.value)
    assert message.startswith(f"the packages {packages[0]} could not be added to the image 'python'")
    assert said in message
    assert "://" not in message
    assert len(message) < 3000
    assert not builder.find("python", packages)
    assert unfinished(client) == []


def test_two_processes_that_ask_at_once_get_one_image_from_one_build(
    builder: PackageImageBuilder, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", OBTAIN, str(tmp_path / "locks")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        told = [process.communicate(timeout=PATIENCE_S)[0].split() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert told[0][0] == told[1][0] == newest(builder, ("six<1.17,>=1.16",)).reference
    assert sorted(built for _reference, built in told) == ["False", "True"]


async def test_a_session_that_is_cancelled_while_its_image_is_built_ends_soon_and_leaves_nothing(
    builder: PackageImageBuilder, client: ImageClient
) -> None:
    packages = ("networkx==3.2.*", "sympy==1.12.*")
    async with SessionManager(grants=GRANTS) as manager:
        session = await open_code(manager, "print('never')", packages=packages)
        async with asyncio.timeout(PATIENCE_S), session:
            async for chunk in session:
                if chunk.content.startswith("Collecting "):
                    await session.cancel()
            result = await session.finalize()
    assert (result.success, result.status.reason, result.output) == (False, "cancelled", "")
    assert not await asyncio.to_thread(builder.find, "python", packages)
    assert await asyncio.to_thread(unfinished, client) == []


async def test_a_kept_kernel_keeps_its_packages_and_its_image_is_not_removed_under_it(
    installing: SessionManager, builder: PackageImageBuilder
) -> None:
    packages = ASKED["python"]
    said, _ = await run(
        installing, "import humanize; x = 41; print('first')", packages=packages, session_id="s"
    )
    assert said == "first\n"
    assert await run(installing, "print(humanize.intcomma(x + 1000))", session_id="s") == ("1,041\n", [])
    made = await asyncio.to_thread(newest, builder, packages)
    assert not await asyncio.to_thread(builder.discard, made)
    with pytest.raises(ConfigurationError, match="use another session_id"):
        await run(installing, "1", packages=("six<1.17,>=1.16",), session_id="s")


def test_the_command_line_lists_and_prunes_what_nobody_uses(
    builder: PackageImageBuilder, tmp_path: Path
) -> None:
    packages = ASKED["python"]
    reference = builder.obtain("python", packages, locks=tmp_path / "locks")
    assert f"{reference}\t" in _aeolus("images", "list")
    assert f"would remove {reference} (python with humanize==4.9.*)" in _aeolus(
        "images", "prune", "--unused-for", "0", "--dry-run"
    )
    assert reference not in _aeolus("images", "prune", "--unused-for", "1d", "--dry-run")
    made = newest(builder, packages)
    assert made in builder.unused(for_s=0)
    assert made not in builder.unused(for_s=3600)
    assert builder.discard(made)
    assert builder.find("python", packages) is None
    assert builder.discard(made)  # what is gone is gone


def _aeolus(*arguments: str) -> str:
    command = [sys.executable, "-m", "aeolus_sandbox", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
