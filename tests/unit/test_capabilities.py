"""Deny is the default, and a grant covers exactly what it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aeolus_sandbox.capabilities import SANDBOXED, CapabilityKind, Grants, require
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
    assert Grants(kinds=granted).narrowed_to(asked).kinds == granted & asked


def test_an_empty_grant_grants_nothing() -> None:
    for kind in CapabilityKind:
        with pytest.raises(CapabilityDenied):
            require("tool", kind, Grants())


def test_a_tool_that_requires_nothing_needs_no_grant() -> None:
    require("tool", None, Grants())


def test_the_default_touches_nothing_of_the_host() -> None:
    assert SANDBOXED.kinds == {CapabilityKind.RUN_COMMANDS, CapabilityKind.RUN_CODE}


def test_a_denial_is_a_permission_error_that_says_what_to_do() -> None:
    with pytest.raises(PermissionError, match=r"pass grants=Grants.of\(CapabilityKind.READ_LOGS"):
        require("log_tailer", CapabilityKind.READ_LOGS, SANDBOXED)
