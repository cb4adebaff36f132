"""How a run ended is data, and reads well."""

import pytest
from pydantic import ValidationError

from aeolus_sandbox.exit_status import ExitStatus
from aeolus_sandbox.limits import LimitName


@pytest.mark.parametrize(
    ("status", "words", "ok"),
    [
        (ExitStatus(reason="exited", code=0), "exited with code 0", True),
        (ExitStatus(reason="exited", code=3), "exited with code 3", False),
        (ExitStatus(reason="exited", code=None), "exited", False),
        (
            ExitStatus(reason="timed_out", code=137, limit_hit=LimitName.WALL_TIME),
            "timed out with code 137 (wall time limit)",
            False,
        ),
        (ExitStatus(reason="cancelled"), "cancelled", False),
        (ExitStatus(reason="lost", code=0), "lost with code 0", False),
    ],
)
def test_a_status_says_why_and_how(status: ExitStatus, words: str, ok: bool) -> None:
    assert str(status) == words
    assert status.ok is ok
    assert ExitStatus.model_validate_json(status.model_dump_json()) == status


def test_a_reason_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValidationError):
        ExitStatus.model_validate({"reason": "finished"})
