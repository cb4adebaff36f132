"""The engine's promises about launching, listing and removing: nothing is ever left."""

import asyncio
import random
from contextlib import suppress
from typing import Final

from aeolus_sandbox.engine.base import OWNER_LABEL, SESSION_LABEL, ContainerId
from aeolus_sandbox.errors import EngineError, ImageNotFound, RuntimeMissing, ShellMissing
from aeolus_sandbox.testing.engine_subject import TIMEOUT_S, Check, Subject, read_until

_NOT_FOUND_CODE: Final = 127
_MISSING_IMAGE: Final = "aeolus-engine-suite/no-such-image:none"
_MISSING_RUNTIME: Final = "aeolus-no-such-runtime"
_FOREVER: Final = "echo ready; exec sleep 300"


async def a_missing_image_is_said_and_leaves_nothing(subject: Subject) -> None:
    """The error has a type of its own, and names the image."""
    spec = subject.spec("exit 0").model_copy(update={"image": _MISSING_IMAGE})
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await subject.engine.launch(spec)
    except ImageNotFound as error:
        assert _MISSING_IMAGE in str(error)  # noqa: PT017 - there is no pytest here
    else:
        msg = "the launch of an image that is not there succeeded"
        raise AssertionError(msg)
    assert await subject.left() == 0


async def a_missing_runtime_is_said_and_leaves_nothing(subject: Subject) -> None:
    """No other runtime takes the place of the one that was asked for; the error names it."""
    spec = subject.spec("exit 0").model_copy(update={"runtime": _MISSING_RUNTIME})
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await subject.engine.launch(spec)
    except RuntimeMissing as error:
        assert _MISSING_RUNTIME in str(error)  # noqa: PT017 - there is no pytest here
    else:
        msg = "the launch with a runtime that is not there succeeded"
        raise AssertionError(msg)
    assert await subject.left() == 0


async def a_missing_program_is_said_and_leaves_nothing(subject: Subject) -> None:
    """Either the launch fails, or the init says that it cannot execute the program and ends with 127."""
    with suppress(ShellMissing):
        output, ended = await subject.output_of(subject.program("/no/such/program"))
        assert output["stderr"].startswith(b"[FATAL tini")
        assert ended.code == _NOT_FOUND_CODE
    assert await subject.left() == 0


async def containers_are_listed_by_label(subject: Subject) -> None:
    """A label is matched by name, or by name and value; all of them must match."""
    engine, owner = subject.engine, subject.owner
    async with (
        subject.running(subject.spec(_FOREVER, session="one")) as one,
        subject.running(subject.spec(_FOREVER, session="two")) as two,
    ):
        both = await engine.list_containers({OWNER_LABEL: owner})
        assert {each.id for each in both} == {one.id, two.id}
        assert {each.state for each in both} == {"running"}
        assert [each.labels[SESSION_LABEL] for each in both if each.id == two.id] == ["two"]
        any_owner = await engine.list_containers({OWNER_LABEL: None})
        assert {one.id, two.id} <= {each.id for each in any_owner}
        narrowed = await engine.list_containers({OWNER_LABEL: owner, SESSION_LABEL: "one"})
        assert [each.id for each in narrowed] == [one.id]
        assert await engine.list_containers({OWNER_LABEL: owner, SESSION_LABEL: "three"}) == []
    assert await subject.left() == 0


async def one_that_has_ended_is_listed_until_it_is_removed(subject: Subject) -> None:
    """The end of a container does not make it forgotten."""
    async with subject.running(subject.spec("exit 0")) as container, asyncio.timeout(TIMEOUT_S):
        await container.wait_exit()
        listed = await subject.engine.list_containers({OWNER_LABEL: subject.owner})
        assert [(each.id, each.state) for each in listed] == [(container.id, "exited")]
    assert await subject.left() == 0


async def removal_can_be_asked_for_by_many(subject: Subject) -> None:
    """Six removals at once, and one more later, all succeed, and nothing is left."""
    for tty in (False, True):
        async with subject.running(subject.spec(_FOREVER, tty=tty)) as container, asyncio.timeout(TIMEOUT_S):
            async with asyncio.TaskGroup() as group:
                for number in range(6):
                    work = container.aclose() if number % 2 else subject.engine.remove_container(container.id)
                    group.create_task(work)
            assert await subject.left() == 0
            await container.aclose()
            await subject.engine.remove_container(container.id)


async def one_that_was_removed_behind_our_back_can_be_closed(subject: Subject) -> None:
    """Whoever holds it notices the end, and closes it without an error."""
    async with subject.running(subject.spec(_FOREVER)) as container, asyncio.timeout(TIMEOUT_S):
        await read_until(container, b"ready")
        await subject.engine.remove_container(container.id)
        with suppress(EngineError):  # a cut stream may say so
            while await container.stream.read():
                pass
        try:
            await container.wait_exit()
        except EngineError:
            pass
        else:
            msg = "the end of a container that is not there was reported as if it were known"
            raise AssertionError(msg)
    assert await subject.left() == 0


async def closing_while_it_ends_is_no_error(subject: Subject) -> None:
    """A removal may meet a container that is just ending."""
    chance = random.Random(3)  # noqa: S311 - not a secret
    for _ in range(min(subject.rounds, 10)):
        async with subject.running(subject.spec("echo ready; sleep 0.05")) as container:
            await read_until(container, b"ready")
            await asyncio.sleep(chance.random() * 0.1)
    assert await subject.left() == 0


async def removing_what_never_was_has_no_effect(subject: Subject) -> None:
    """An unknown id is one that is gone."""
    async with asyncio.timeout(TIMEOUT_S):
        await subject.engine.remove_container(ContainerId("0123456789abcdef" * 4))


async def a_cancelled_launch_leaves_nothing(subject: Subject) -> None:
    """Whenever the caller is cancelled, the container is not there a little later."""
    chance = random.Random(5)  # noqa: S311 - not a secret
    loop = asyncio.get_running_loop()
    before = loop.time()
    async with subject.running(subject.spec(_FOREVER)):
        usual_s = loop.time() - before
    for _ in range(subject.rounds):
        try:
            async with asyncio.timeout(chance.random() * usual_s * 1.2):
                container = await subject.engine.launch(subject.spec(_FOREVER))
        except TimeoutError:
            continue
        await container.aclose()
    await subject.wait_nothing_left()


async def an_engine_says_what_it_is(subject: Subject) -> None:
    """Name and version are known without a container."""
    async with asyncio.timeout(TIMEOUT_S):
        info = await subject.engine.info()
    assert info.name
    assert info.version
    assert info.default_runtime in info.runtimes


CHECKS: Final[tuple[Check, ...]] = (
    a_missing_image_is_said_and_leaves_nothing,
    a_missing_runtime_is_said_and_leaves_nothing,
    a_missing_program_is_said_and_leaves_nothing,
    containers_are_listed_by_label,
    one_that_has_ended_is_listed_until_it_is_removed,
    removal_can_be_asked_for_by_many,
    one_that_was_removed_behind_our_back_can_be_closed,
    closing_while_it_ends_is_no_error,
    removing_what_never_was_has_no_effect,
    a_cancelled_launch_leaves_nothing,
    an_engine_says_what_it_is,
)
