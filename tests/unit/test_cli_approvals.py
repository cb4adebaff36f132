"""`aeolus approvals`: what an operator sees of what waits, and that deciding it does what was meant, once."""

import asyncio
import json
import os
import pwd
import re
import unicodedata
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from aeolus_sandbox.approvers.desk import ApprovalDesk
from aeolus_sandbox.cli import app
from aeolus_sandbox.cli.approval_views import COLUMNS
from aeolus_sandbox.cli.state import one_line
from aeolus_sandbox.sandboxes.owner import Owner
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Approval
from aeolus_sandbox.streaming.approval import ApprovalRequest, Approve, Decision, Deny, Edit
from tests.unit.at_terminal import AEOLUS, LIMIT_S, at_terminal

T = TypeVar("T")

ATTACK = "ok\x1b[2J\x1b]0;owned\x07 \x9b31mred \u202egnp.exe\x1b[30;40mhidden\nSECRET\rnothing here\nend"
SGR = re.compile(r"\x1b\[[0-9;]*m")
"""What the table itself is painted with."""
USER = pwd.getpwuid(os.getuid()).pw_name

runner = CliRunner()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def aeolus(state: Path, *arguments: str, stdin: bytes = b"") -> Result:
    return runner.invoke(app, ["approvals", *arguments, "--state-file", str(state)], input=stdin)


async def answer(state: Path, question: Callable[[ApprovalStore], Awaitable[T]]) -> T:
    async with aclosing(Database(state)) as database:
        return await question(ApprovalStore(database))


def stored(state: Path, question: Callable[[ApprovalStore], Awaitable[T]]) -> T:
    return asyncio.run(answer(state, question))


def request(text: str = "hello", **fields: Any) -> ApprovalRequest:
    defaults: dict[str, Any] = {
        "run_key": "run",
        "sequence": 0,
        "session_id": "session",
        "tool_name": "terminal",
        "approvers": ("role:admin",),
        "text": text,
        "preview": text[:100],
        "timeout_s": 300,
    }
    return ApprovalRequest(**(defaults | fields))


def add(state: Path, text: str = "hello", *, owner: str | None = None, **fields: Any) -> Approval:
    label = str(Owner.this_process()) if owner is None else owner
    return stored(state, lambda store: store.add(request(text, **fields), owner=label))


def gone_owner() -> str:
    mine = Owner.this_process()
    return str(Owner(mine.host, mine.pid, "1", mine.nonce))


def decision_of(state: Path, approval: Approval) -> Decision | None:
    found = stored(state, lambda store: store.get(approval.id))
    assert found is not None
    return found.decision


def is_obeyed(character: str) -> bool:
    """Return whether a terminal would obey the character instead of showing it."""
    control = unicodedata.category(character) == "Cc" and character != "\n"
    return control or unicodedata.bidirectional(character) in {"RLO", "LRO", "RLE", "LRE", "RLI", "LRI"}


# No state file.


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["list"], 0, "nothing waits for a decision"),
        (["list", "--all"], 0, "there is no approval"),
        (["list", "--json"], 0, ""),
        (["show", "0123"], 1, "there is no approval"),
        (["approve", "0123"], 1, "there is no approval"),
        (["deny", "0123"], 1, "there is no approval"),
        (["prune"], 0, "nothing to remove"),
    ],
)
def test_state_file_that_does_not_exist_is_empty_and_is_not_made(
    state: Path, arguments: list[str], code: int, words: str
) -> None:
    result = aeolus(state, *arguments)
    assert result.exit_code == code
    assert words in result.output
    assert list(state.parent.iterdir()) == []


def test_environment_says_where_the_state_file_is(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = add(state)
    monkeypatch.setenv("AEOLUS_STATE", str(state))
    assert approval.id in runner.invoke(app, ["approvals", "list"]).stdout


def test_file_that_is_no_state_file_is_one_line_and_exit_code_125(state: Path) -> None:
    state.write_bytes(b"something else " * 100)
    result = aeolus(state, "list")
    assert result.exit_code == 125
    (line,) = result.stderr.splitlines()
    assert str(state) in line
    assert state.read_bytes() == b"something else " * 100


# Listing.


def test_pipe_gets_a_line_of_tab_separated_columns_for_each(state: Path) -> None:
    first = add(state, "a\tb\nc")
    second = add(state, "result", sequence=-1, approvers=("role:a", "role:b"), owner="no owner")
    rows = [line.split("\t") for line in aeolus(state, "list").stdout.splitlines()]
    assert [len(row) for row in rows] == [1 + len(COLUMNS)] * 2
    assert [row[0] for row in rows] == [first.id, second.id]
    assert rows[0][1:5] == ["pending", "terminal", "session", "chunk 0"]
    assert rows[0][6:] == ["alive", "role:admin", "a b c"]
    assert rows[1][4] == "result"
    assert rows[1][6:] == ["unknown", "role:a, role:b", "result"]
    assert datetime.fromisoformat(rows[0][5]) == first.created_at


@given(st.text(st.characters(codec=None) | st.sampled_from("\t\n\r\x0b\u2028\x1b[m"), max_size=60))
def test_any_text_is_one_harmless_cell_of_one_line(text: str) -> None:
    cell = one_line(text)
    assert "\n" not in cell
    assert not any(map(is_obeyed, cell))


def test_only_what_is_pending_is_listed_unless_all_is_asked_for(state: Path) -> None:
    pending, decided = add(state, "one"), add(state, "two")
    stored(state, lambda store: store.decide(decided.id, Deny(by="me")))
    assert [line.split("\t")[0] for line in aeolus(state, "list").stdout.splitlines()] == [pending.id]
    everything = aeolus(state, "list", "--all").stdout
    assert {tuple(line.split("\t")[:2]) for line in everything.splitlines()} == {
        (pending.id, "pending"), (decided.id, "decided"),
    }  # fmt: skip


@pytest.mark.parametrize("json_option", [[], ["--json"]])
def test_list_that_is_cut_says_so(state: Path, json_option: list[str]) -> None:
    for number in range(3):
        add(state, str(number), sequence=number)
    cut = aeolus(state, "list", "--limit", "2", *json_option)
    assert len(cut.stdout.splitlines()) == 2
    assert "--limit" in cut.stderr
    whole = aeolus(state, "list", "--limit", "3", *json_option)
    assert len(whole.stdout.splitlines()) == 3
    assert whole.stderr == ""


def test_json_lines_hold_all_but_the_text_which_show_adds(state: Path) -> None:
    text = "lone \ud800 surrogate, and \x1b[2J " + "x" * 200
    approval = add(state, text, owner=gone_owner())
    stored(state, lambda store: store.decide(approval.id, Edit(by="me", text="instead")))
    (line,) = aeolus(state, "list", "--all", "--json").stdout.splitlines()
    listed = json.loads(line)
    assert line.isascii()
    assert listed["id"] == approval.id
    assert listed["content_hash"] == approval.content_hash
    assert listed["decision"] == {"kind": "edit", "by": "me", "text": "instead"}
    assert listed["process"] == "gone"
    assert listed["characters"] == len(text)
    assert datetime.fromisoformat(listed["created_at"]) == approval.created_at
    assert "text" not in listed
    shown = json.loads(aeolus(state, "show", approval.id, "--json").stdout)
    assert shown == listed | {"text": text.replace("\ud800", "\ufffd")}


def test_terminal_gets_a_table_with_ids_that_are_short_and_stand_for_one_approval(state: Path) -> None:
    ids = [add(state, f"{number} {ATTACK}", sequence=number).id for number in range(3)]
    code, screen = at_terminal("approvals", "list", "--state-file", str(state))
    assert code == 0
    assert not any(map(is_obeyed, SGR.sub("", screen)))
    short = re.findall(r"[0-9a-f]{8}-[0-9a-f-]+", screen)
    assert all(whole.startswith(beginning) for whole, beginning in zip(ids, short, strict=True))
    for beginning in short:
        assert aeolus(state, "approve", beginning).exit_code == 0
    assert aeolus(state, "list").stdout == ""


# Showing.


def test_pipe_gets_the_exact_text(state: Path) -> None:
    approval = add(state, ATTACK)
    shown = aeolus(state, "show", approval.id).stdout_bytes
    assert shown.endswith(b"\n\n" + ATTACK.encode() + b"\n")
    assert approval.content_hash.encode() in shown


def test_terminal_shows_the_whole_text_and_obeys_nothing_of_it(state: Path) -> None:
    approval = add(state, ATTACK, approvers=("role:admin\x1b[2J",))
    code, screen = at_terminal("approvals", "show", approval.id, "--state-file", str(state))
    assert code == 0
    assert not any(map(is_obeyed, screen))
    assert "␛]0;owned␇" in screen
    assert "SECRET␍nothing here\nend" in screen, "a carriage return hides what stands before it"


def test_an_edit_is_shown_with_what_passes_instead(state: Path) -> None:
    approval = add(state, "password")
    aeolus(state, "approve", approval.id, "--edit", "-", stdin=b"[redacted]")
    output = aeolus(state, "show", approval.id).stdout
    assert f"approved by role:admin ({USER}), edited" in output
    assert output.endswith("what passes instead:\n\n[redacted]\n")


@pytest.mark.parametrize(
    ("run_key", "note"),
    [("key", "counts for the next run of the same key"), ("session", "counts for nothing")],
)
def test_operator_learns_that_nobody_waits_for_the_decision(state: Path, run_key: str, note: str) -> None:
    approval = add(state, run_key=run_key, owner=gone_owner())
    assert note in aeolus(state, "show", approval.id).stdout
    assert note in at_terminal("approvals", "list", "--state-file", str(state))[1]
    assert note in aeolus(state, "approve", approval.id).stderr


# Deciding.


def test_approval_is_recorded_with_role_and_user_whatever_the_environment_says(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    approval = add(state)
    assert aeolus(state, "approve", approval.id).exit_code == 0
    assert decision_of(state, approval) == Approve(by=f"role:admin ({USER})")


def test_denial_is_recorded_as_somebodys_with_its_reason(state: Path) -> None:
    approval = add(state)
    result = aeolus(state, "deny", approval.id, "--reason", "too much")
    assert result.exit_code == 0
    assert result.stdout == f"{approval.id} denied by role:admin ({USER}): too much\n"
    assert decision_of(state, approval) == Deny(by=f"role:admin ({USER})", reason="too much", answered=True)


@pytest.mark.parametrize("text", ["", "one\r\ntwo", "no line end", "ends\n\n", "é\u202e"])
def test_edited_text_passes_exactly(state: Path, tmp_path: Path, text: str) -> None:
    from_file, from_stdin = add(state, "one"), add(state, "two")
    file = tmp_path / "edited"
    file.write_bytes(text.encode())
    assert aeolus(state, "approve", from_file.id, "--edit", str(file)).exit_code == 0
    assert aeolus(state, "approve", from_stdin.id, "--edit", "-", stdin=text.encode()).exit_code == 0
    for approval in (from_file, from_stdin):
        assert decision_of(state, approval) == Edit(by=f"role:admin ({USER})", text=text)


def test_edit_that_cannot_be_read_decides_nothing(state: Path, tmp_path: Path) -> None:
    approval = add(state)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\xff")
    for file in (broken, tmp_path / "missing", tmp_path):
        assert aeolus(state, "approve", approval.id, "--edit", str(file)).exit_code == 2
    assert decision_of(state, approval) is None


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize(
    ("approvers", "role", "by"),
    [
        (("role:a",), None, "role:a"),
        (("role:a",), "role:a", "role:a"),
        (("role:a", "role:b"), "role:b", "role:b"),
        (("role:a", "role:b"), None, None),
        (("role:a", "role:b"), "role:c", None),
        (("role:a",), "role:c", None),
        ((), None, None),
    ],
)
def test_only_one_of_its_approvers_decides(
    state: Path, command: str, approvers: tuple[str, ...], role: str | None, by: str | None
) -> None:
    approval = add(state, approvers=approvers)
    result = aeolus(state, command, approval.id, *([] if role is None else ["--as", role]))
    decision = decision_of(state, approval)
    if by is None:
        assert result.exit_code == 2
        assert all(each in result.stderr for each in approvers)
        assert decision is None
    else:
        assert result.exit_code == 0
        assert decision is not None
        assert decision.by == f"{by} ({USER})"


def test_text_other_than_the_one_that_was_seen_is_not_approved(state: Path) -> None:
    approval = add(state)
    other = request("another text").content_hash
    refused = aeolus(state, "approve", approval.id, "--hash", other[:8])
    assert refused.exit_code == 1
    assert approval.content_hash in refused.stderr
    assert decision_of(state, approval) is None
    assert aeolus(state, "approve", approval.id, "--hash", approval.content_hash[:8].upper()).exit_code == 0


@pytest.mark.parametrize("prefix", ["", "1234567", "0x123456", "g" * 8, "0" * 65, "1234567 "])
def test_what_is_no_hash_is_wrong_usage(state: Path, prefix: str) -> None:
    approval = add(state)
    assert aeolus(state, "approve", approval.id, "--hash", prefix).exit_code == 2
    assert decision_of(state, approval) is None


async def _decide(store: ApprovalStore, id_: str) -> None:
    await store.decide(id_, Approve(by="first"))


async def _use(store: ApprovalStore, id_: str) -> None:
    await store.decide(id_, Approve(by="first"))
    await store.use(id_)


async def _expire(store: ApprovalStore, id_: str) -> None:
    await store.expire(id_)


async def _withdraw(store: ApprovalStore, id_: str) -> None:
    await store.withdraw(id_)


@pytest.mark.parametrize("command", ["approve", "deny"])
@pytest.mark.parametrize(
    ("close", "words"),
    [
        (_decide, "decided before"),
        (_use, "was used"),
        (_expire, "timed out"),
        (_withdraw, "not needed any more"),
    ],
)
def test_what_waits_no_more_is_not_decided_again(
    state: Path,
    command: str,
    close: Callable[[ApprovalStore, str], Awaitable[None]],
    words: str,
) -> None:
    approval = add(state)
    stored(state, lambda store: close(store, approval.id))
    before = decision_of(state, approval)
    result = aeolus(state, command, approval.id)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stdout == ""
    assert decision_of(state, approval) == before


@pytest.mark.parametrize("command", ["show", "approve", "deny"])
def test_id_that_is_none_or_more_than_one_is_said_and_exit_code_1(state: Path, command: str) -> None:
    approvals = [add(state, str(number)) for number in range(2)]
    common = approvals[0].id[: len("01234567")]
    assert approvals[1].id.startswith(common)
    for id_ in ("nosuch", "%", approvals[0].id[:3], common):
        result = aeolus(state, command, id_)
        assert result.exit_code == 1
        (line,) = result.stderr.splitlines()
        assert repr(id_) in line
    assert all(decision_of(state, each) is None for each in approvals)


async def test_another_process_decides_what_this_one_waits_for(state: Path) -> None:
    async with asyncio.timeout(LIMIT_S), aclosing(Database(state)) as database:
        store = ApprovalStore(database)
        desk = ApprovalDesk(store, None, owner=str(Owner.this_process()), poll_s=0.05)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(desk.decide(request("wait for it")))
            while not (pending := await store.list()):  # noqa: ASYNC110 - the file tells nobody
                await asyncio.sleep(0.01)
            process = await asyncio.create_subprocess_exec(
                *AEOLUS, "approvals", "approve", pending[0].id, "--edit", "-", "--state-file", str(state),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            said, _ = await process.communicate(b"another text")
        assert process.returncode == 0
        assert pending[0].id.encode() in said
        assert waiting.result() == Edit(by=f"role:admin ({USER})", text="another text")


# Removing.


def test_prune_removes_what_is_over_and_old_and_never_what_waits(state: Path) -> None:
    def at(age: timedelta) -> Callable[[Database], ApprovalStore]:
        return lambda database: ApprovalStore(database, now=lambda: datetime.now(UTC) - age)

    async def prepare() -> list[str]:
        async with aclosing(Database(state)) as database:
            old, recent = at(timedelta(days=40))(database), at(timedelta(days=20))(database)
            ids = [
                (await store.add(request(str(n)), owner="o")).id for n, store in enumerate((old, old, recent))
            ]
            for store, id_ in ((old, ids[1]), (recent, ids[2])):
                await store.decide(id_, Deny(by="me"))
            return ids

    waits, old, recent = asyncio.run(prepare())
    assert aeolus(state, "prune", "--dry-run").stdout == f"would remove {old}\n"
    assert aeolus(state, "prune").stdout == f"removed {old}\n"
    assert aeolus(state, "prune").stdout == "nothing to remove\n"
    assert aeolus(state, "prune", "--older-than", "19d").stdout == f"removed {recent}\n"
    assert waits in aeolus(state, "list").stdout
    assert aeolus(state, "prune", "--older-than", "0s").stdout == "nothing to remove\n"


@pytest.mark.parametrize(
    "command", [[], ["list"], ["show"], ["approve"], ["deny"], ["prune"]], ids=lambda value: " ".join(value)
)
def test_every_command_has_help(command: list[str]) -> None:
    result = runner.invoke(app, ["approvals", *command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_help_of_an_edit_says_that_json_must_stay_json() -> None:
    assert "JSON" in runner.invoke(app, ["approvals", "approve", "--help"]).output
