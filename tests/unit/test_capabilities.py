"""Deny is the default, and a grant covers exactly what it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.capabilities import SANDBOXED, CapabilityKind, Grants, ReadLogs, is_inside, require
from aeolus_sandbox.errors import CapabilityDenied

kinds = st.frozensets(st.sampled_from(CapabilityKind))


@given(granted=kinds, required=st.sampled_from(CapabilityKind))
def test_a_tool_may_start_exactly_when_its_capability_was_granted(
    granted: frozenset[CapabilityKind], required: CapabilityKind
) -> None:
    grants = Grants(kinds=granted)
    if required in granted:
        require("tool", required, grants)
        return
    with pytest.raises(CapabilityDenied, match=f"'tool' requires the capability '{required.value}'"):
        require("tool", required, grants)


@given(granted=kinds, asked=kinds)
def test_narrowing_never_adds_a_grant(
    granted: frozenset[CapabilityKind], asked: frozenset[CapabilityKind]
) -> None:
    assert Grants(kinds=granted).narrowed_to(Grants(kinds=asked)).kinds == granted & asked


def test_an_empty_grant_grants_nothing() -> None:
    for kind in CapabilityKind:
        with pytest.raises(CapabilityDenied):
            require("tool", kind, Grants())


def test_a_tool_that_requires_nothing_needs_no_grant() -> None:
    require("tool", None, Grants())


def test_the_default_touches_nothing_of_the_host() -> None:
    assert SANDBOXED.kinds == {CapabilityKind.RUN_COMMANDS, CapabilityKind.RUN_CODE}


def test_a_denial_is_a_permission_error_that_says_what_to_do() -> None:
    with pytest.raises(PermissionError, match=r"pass grants=Grants.of\(CapabilityKind.CUSTOM"):
        require("sensor", CapabilityKind.CUSTOM, SANDBOXED)
    with pytest.raises(PermissionError, match=r"pass grants=Grants.of\(ReadLogs\(roots="):
        require("log_tailer", CapabilityKind.READ_LOGS, SANDBOXED)


# Log files.


def test_roots_imply_the_kind_and_nothing_else() -> None:
    grants = Grants.of(
        CapabilityKind.RUN_CODE, ReadLogs(roots=["/srv/a/"]), ReadLogs(roots=["/srv/b", "/srv/a"])
    )
    assert grants.kinds == {CapabilityKind.RUN_CODE, CapabilityKind.READ_LOGS}
    assert grants.log_access == ReadLogs(roots=["/srv/a", "/srv/b"])


@pytest.mark.parametrize(
    "grants",
    [
        Grants.of(ReadLogs()),
        Grants.of(ReadLogs(groups=["adm"])),
        Grants(logs=ReadLogs(roots=["/srv"])),
        Grants.of(CapabilityKind.RUN_COMMANDS, ReadLogs(roots=[])),
    ],
)
def test_without_a_root_or_the_kind_no_log_may_be_read(grants: Grants) -> None:
    assert not grants.log_access.roots
    with pytest.raises(CapabilityDenied):
        require("log_tailer", CapabilityKind.READ_LOGS, grants)


@pytest.mark.parametrize(
    "root", ["", "/", "//", "logs", "./logs", "~/logs", "/a/../b", "/a/./b", "/a//b", "/a/..", "/a\0b"]
)
def test_a_root_that_is_no_plain_folder_is_refused(root: str) -> None:
    with pytest.raises(ValueError, match="not an absolute, normal path"):
        ReadLogs(roots=[root])


@pytest.mark.parametrize("group", ["", 0, -1, 2**32])
def test_a_group_that_is_none_is_refused(group: str | int) -> None:
    with pytest.raises(ValueError, match="groups"):
        ReadLogs(roots=["/srv"], groups=[group])


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        (["/srv/logs"], ["/srv/logs"]),
        (["/srv/logs/app"], ["/srv/logs/app"]),
        (["/srv/logs-other"], []),
        (["/srv"], []),
        (["/srv/log"], []),
        ([], []),
        (["/other/x", "/srv/logs/b"], ["/srv/logs/b"]),
    ],
)
def test_roots_are_narrowed_by_their_names_part_by_part(asked: list[str], left: list[str]) -> None:
    granted = Grants.of(ReadLogs(roots=["/srv/logs", "/data"], groups=["adm", 44]))
    narrowed = granted.narrowed_to(Grants.of(ReadLogs(roots=asked, groups=[44, "root"])))
    assert list(narrowed.logs.roots) == left
    assert narrowed.logs.groups == (44,)


folders = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map(
    lambda parts: "/" + "/".join(parts)
)


@given(granted=st.lists(folders, max_size=3), asked=st.lists(folders, max_size=3), path=folders)
def test_narrowing_never_lets_more_be_read(granted: list[str], asked: list[str], path: str) -> None:
    narrowed = ReadLogs(roots=granted).narrowed_to(ReadLogs(roots=asked))
    if any(is_inside(path, root) for root in narrowed.roots):
        assert any(is_inside(path, root) for root in granted)
        assert any(is_inside(path, root) for root in asked)


def test_grants_are_written_as_json_and_read_again() -> None:
    grants = Grants.of(CapabilityKind.RUN_CODE, ReadLogs(roots=["/srv/logs"], groups=["adm", 4]))
    assert Grants.model_validate_json(grants.model_dump_json()) == grants
