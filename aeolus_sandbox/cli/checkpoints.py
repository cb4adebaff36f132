"""`aeolus checkpoints`: the runs that are recorded under an idempotency key."""

import json
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

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
    liveness_of,
    moment_before,
    parse_name,
    say_more,
    with_age,
    write_fields,
    write_json,
    write_lines,
    write_removed,
    write_table,
    write_text,
)
from aeolus_sandbox.storage.checkpoints import Checkpoints
from aeolus_sandbox.storage.database import Database
from aeolus_sandbox.storage.records import Checkpoint, RunState

_COLUMNS: Final = ("key", "state", "began", "ended", "tool")

app = typer.Typer(help="List, show and remove the recorded runs.", no_args_is_help=True)


@app.command("list")
def list_checkpoints(
    only: Annotated[RunState | None, typer.Option("--only", help="Only those in this state.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    json_lines: JsonLines = False,
    state_file: StateFile = None,
) -> None:
    """List the runs, newest first; a pipe gets a line for each, with tabs between the columns.

    The columns are the key, state, whether the process of a running one lives, how many times it was started, when it
    began and ended, and the tool. JSON objects hold all but the result.
    """

    async def runs(database: Database) -> list[Checkpoint]:
        return await Checkpoints(database).list(state=only, limit=limit + 1)

    found = ask(state_file, runs) or []
    shown = found[:limit]
    if json_lines:
        for checkpoint in shown:
            write_json(_as_record(checkpoint))
    elif not shown:
        say("no run is recorded" if only is None else f"no run that is {only} is recorded")
    elif is_screen():
        write_table(_COLUMNS, [_for_people(checkpoint) for checkpoint in shown])
    else:
        write_lines(_for_programs(checkpoint) for checkpoint in shown)
    if len(found) > limit:
        say_more(limit)


@app.command()
def show(
    key: Annotated[str, typer.Argument(metavar="KEY", parser=parse_name, help="The idempotency key.")],
    as_json: AsJson = False,
    state_file: StateFile = None,
) -> None:
    """Show one run, with its result; on a terminal nothing in it is obeyed, and all of it is made visible."""

    async def run(database: Database) -> Checkpoint | None:
        return await Checkpoints(database).get(key)

    checkpoint = ask(state_file, run)
    if checkpoint is None:
        fail(f"no run is recorded under the key {key!r}")
    result = None if checkpoint.final is None else json.loads(checkpoint.final)
    if as_json:
        write_json(_as_record(checkpoint) | {"result": result})
        return
    write_fields(_fields(checkpoint))
    if checkpoint.final is not None:
        write_text(json.dumps(result, indent=2, ensure_ascii=False))


@app.command()
def prune(older_than: OlderThan = DEFAULT_AGE, dry_run: DryRun = False, state_file: StateFile = None) -> None:
    """Remove the runs that ended longer ago than an age; a run of such a key then starts anew. Never a running one."""
    before = moment_before(older_than)

    async def remove(database: Database) -> list[str]:
        return await Checkpoints(database).prune(ended_before=before, dry_run=dry_run)

    write_removed(ask(state_file, remove) or [], dry_run=dry_run)


def _for_programs(checkpoint: Checkpoint) -> tuple[str, ...]:
    ended = checkpoint.ended_at
    return (
        checkpoint.key,
        checkpoint.state,
        _process(checkpoint) or "",
        str(checkpoint.attempts),
        checkpoint.created_at.isoformat(),
        "" if ended is None else ended.isoformat(),
        checkpoint.tool_name,
    )


def _for_people(checkpoint: Checkpoint) -> tuple[str, ...]:
    process, ended = _process(checkpoint), checkpoint.ended_at
    return (
        checkpoint.key,
        checkpoint.state if process in {None, "alive"} else f"{checkpoint.state} ({process})",
        f"{age_of(checkpoint.created_at)} ago",
        "" if ended is None else f"{age_of(ended)} ago",
        checkpoint.tool_name,
    )


def _fields(checkpoint: Checkpoint) -> dict[str, str | None]:
    return {
        "key": checkpoint.key,
        "state": checkpoint.state,
        "tool": checkpoint.tool_name,
        "input hash": checkpoint.input_hash,
        "process": _process(checkpoint),
        "attempts": str(checkpoint.attempts),
        "began": with_age(checkpoint.created_at),
        "ended": None if checkpoint.ended_at is None else with_age(checkpoint.ended_at),
    }


def _as_record(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return it as JSON takes it, without the result."""
    record = asdict(checkpoint) | {"process": _process(checkpoint)}
    del record["final"]
    return record


def _process(checkpoint: Checkpoint) -> str | None:
    """Return whether the process that runs it lives."""
    return liveness_of(checkpoint.owner) if checkpoint.state == "running" else None
