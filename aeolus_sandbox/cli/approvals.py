"""`aeolus approvals`: what waits for a decision, and deciding it."""

import os
import pwd
import re
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from aeolus_sandbox.cli.approval_views import COLUMNS, as_record, cells, fields, in_words, process_note
from aeolus_sandbox.cli.exits import say
from aeolus_sandbox.cli.state import (
    DEFAULT_AGE,
    DEFAULT_LIMIT,
    AsJson,
    DryRun,
    JsonLines,
    Limit,
    OlderThan,
    StateFile,
    age_of,
    ask,
    fail,
    is_screen,
    moment_before,
    one_line,
    parse_name,
    say_more,
    write_fields,
    write_json,
    write_lines,
    write_removed,
    write_table,
    write_text,
)
from aeolus_sandbox.errors import ApprovalNotFound
from aeolus_sandbox.storage.approvals import ApprovalStore
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Approval, ApprovalState
from aeolus_sandbox.streaming.approval import Approve, Decision, Deny, Edit

T = TypeVar("T")

_STDIN: Final = "-"
_SHORT_ID: Final = len("01234567-89ab")
"""The part of an id that is its time, in milliseconds (RFC 9562, section 5.7): what comes later begins otherwise."""
_CLOSED: Final[dict[ApprovalState, str]] = {
    "decided": "was decided before",
    "used": "was decided before, and the decision was used",
    "timed_out": "timed out: nobody decided in time",
    "withdrawn": "is not needed any more: its session was closed",
}

app = typer.Typer(help="List and decide what waits for a human's decision.", no_args_is_help=True)

Id = Annotated[
    str, typer.Argument(metavar="ID", parser=parse_name, help="Its id, or enough of its beginning.")
]
Role = Annotated[
    str | None,
    typer.Option("--as", metavar="ROLE", help="Which of its approvers you are; default: the only one."),
]


@app.command("list")
def list_approvals(
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is over: decided, timed out ...")
    ] = False,
    limit: Limit = DEFAULT_LIMIT,
    json_lines: JsonLines = False,
    state_file: StateFile = None,
) -> None:
    """List what waits for a decision, oldest first; a pipe gets a line for each, with tabs between the columns.

    The columns are the id, state, tool, session, which text of the run, when it was asked, whether the process that
    asks lives, who may decide, and a preview. JSON objects hold all but the text.
    """
    is_table = is_screen() and not json_lines

    async def waiting(database: Database) -> list[tuple[str, Approval]]:
        store = ApprovalStore(database)
        found = await store.list(state=None if everything else "pending", limit=limit + 1)
        return [(await _short_id(store, each.id) if is_table else each.id, each) for each in found]

    found = ask(state_file, waiting) or []
    shown = found[:limit]
    if json_lines:
        for _, approval in shown:
            write_json(as_record(approval))
    elif not shown:
        say("there is no approval" if everything else "nothing waits for a decision")
    elif is_table:
        _write_table(shown, with_state=everything)
    else:
        write_lines((name, *cells(approval, datetime.isoformat)) for name, approval in shown)
    if len(found) > limit:
        say_more(limit)


@app.command()
def show(approval_id: Id, as_json: AsJson = False, state_file: StateFile = None) -> None:
    """Show one approval, with the whole text; on a terminal nothing in it is obeyed, and all of it is made visible."""
    approval = _about_one(state_file, lambda store: store.find(approval_id))
    if as_json:
        write_json(as_record(approval) | {"text": approval.text})
        return
    write_fields(fields(approval))
    write_text(approval.text)
    if isinstance(approval.decision, Edit):
        typer.echo("\nwhat passes instead:")
        write_text(approval.decision.text)


@app.command()
def approve(
    approval_id: Id,
    edit: Annotated[
        str | None,
        typer.Option(
            "--edit",
            metavar="FILE",
            help="Let the text of this file (- for stdin) pass instead, exactly. Where the text that waits is JSON, "
            "because the chunk is more than text, this must be JSON with the same fields; else nothing passes.",
        ),
    ] = None,
    text_hash: Annotated[
        str | None,
        typer.Option(
            "--hash",
            metavar="PREFIX",
            help="Refuse unless its hash (`show` tells) begins so: 8 digits or more.",
        ),
    ] = None,
    role: Role = None,
    state_file: StateFile = None,
) -> None:
    """Let a text pass, as it is or edited; it counts for exactly this text, once."""
    hash_prefix = _parse_hash(text_hash)
    text = None if edit is None else _read(edit)

    def decision(by: str) -> Decision:
        return Approve(by=by) if text is None else Edit(by=by, text=text)

    _decide(state_file, approval_id, role, decision, hash_prefix)


@app.command()
def deny(
    approval_id: Id,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever asked.")] = "",
    role: Role = None,
    state_file: StateFile = None,
) -> None:
    """Let a text not pass."""
    _decide(state_file, approval_id, role, lambda by: Deny(by=by, reason=reason), "")


@app.command()
def prune(older_than: OlderThan = DEFAULT_AGE, dry_run: DryRun = False, state_file: StateFile = None) -> None:
    """Remove what was decided, or is over, for longer than an age; never what still waits."""
    before = moment_before(older_than)

    async def remove(database: Database) -> list[str]:
        return await ApprovalStore(database).prune(before=before, dry_run=dry_run)

    write_removed(ask(state_file, remove) or [], dry_run=dry_run)


def _decide(
    state_file: Path | None,
    approval_id: str,
    role: str | None,
    decision: Callable[[str], Decision],
    hash_prefix: str,
) -> None:
    user = _os_user()

    async def work(store: ApprovalStore) -> tuple[Approval, Decision]:
        approval = await store.find(approval_id)
        # Boundary: what is decided on is what was seen, and by somebody who may.
        if not approval.content_hash.startswith(hash_prefix):
            fail(f"what waits as {approval.id!r} is not what you saw: its hash is {approval.content_hash}")
        made = decision(f"{_role(approval, role)} ({user})")
        if not await store.decide(approval.id, made):
            closed = await store.find(approval.id)
            fail(f"nothing was decided: the approval {approval.id!r} {_CLOSED[closed.state]}")
        return approval, made

    approval, made = _about_one(state_file, work)
    typer.echo(f"{approval.id} {one_line(in_words(made))}")
    if note := process_note(approval):
        say(note)


def _write_table(shown: list[tuple[str, Approval]], *, with_state: bool) -> None:
    first = 0 if with_state else 1  # all that wait are in the same one
    rows = [(name, *cells(approval, age_of)[first:]) for name, approval in shown]
    write_table(("id", *COLUMNS[first:]), rows)
    for note in sorted({process_note(approval) for _, approval in shown} - {""}):
        say(f"gone: {note}")


def _about_one(state_file: Path | None, question: Callable[[ApprovalStore], Coroutine[Any, Any, T]]) -> T:
    """Return the answer to a question about one approval; an id that is none's is the operator's mistake."""

    async def asked(database: Database) -> T | None:
        return await question(ApprovalStore(database))

    try:
        answer = ask(state_file, asked)
    except ApprovalNotFound as error:
        fail(str(error))
    if answer is None:
        fail("there is no approval: there is no state file")
    return answer


def _role(approval: Approval, role: str | None) -> str:
    if role is None and len(approval.approvers) == 1:
        return approval.approvers[0]
    if role not in approval.approvers:
        msg = f"say which of its approvers you are: {', '.join(approval.approvers)}"
        raise typer.BadParameter(msg, param_hint="--as")
    return role


def _os_user() -> str:
    # Boundary: not what the environment says, which anybody can set.
    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _parse_hash(text: str | None) -> str:
    if text is not None and not re.fullmatch(r"[0-9a-fA-F]{8,64}", text):
        msg = f"{text!r} is not the beginning of a hash: give 8 to 64 hexadecimal digits"
        raise typer.BadParameter(msg, param_hint="--hash")
    return (text or "").lower()


def _read(file: str) -> str:
    try:
        return (sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"cannot read {file!r} as text: {error}"
        raise typer.BadParameter(msg, param_hint="--edit") from error


async def _short_id(store: ApprovalStore, approval_id: str) -> str:
    """Return the beginning of an id that stands for it, as the store sees it."""
    for length in range(_SHORT_ID, len(approval_id)):
        try:
            await store.find(approval_id[:length])
        except ApprovalNotFound:
            continue
        return approval_id[:length]
    return approval_id
