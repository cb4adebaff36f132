"""Another process that traces: `python trace_process.py KIND FOLDER SESSION EVENTS`.

It says `written N` after each event, so that whoever kills it knows what had been taken. Between its
two runs it waits for a line; then it says what its traces have missed, as JSON, and waits for another one.
"""

import asyncio
import json
import sys
from pathlib import Path

from aeolus_sandbox.consumers import MultiConsumer, SqliteTraceConsumer, TraceConsumer, deliver
from aeolus_sandbox.events import Content, Done, Event, SessionStarted, TurnCompleted


def events(session_id: str, count: int) -> list[Event]:
    run: list[Event] = [SessionStarted(sequence=0, session_id=session_id, agent="a", model="m")]
    for number in range(1, count + 1):
        if number % 10:
            run.append(Content(sequence=number, session_id=session_id, content=f"{number} ".ljust(500, ".")))
        else:
            run.append(TurnCompleted(sequence=number, session_id=session_id, turn=number, stop_reason="x"))
    return [*run, Done(sequence=count + 1, session_id=session_id)]


async def trace(kind: str, folder: Path, session_id: str, count: int) -> None:
    jsonl = TraceConsumer(folder, session_id)
    sqlite = SqliteTraceConsumer(folder / "traces.db")
    multi = MultiConsumer()
    if kind in {"jsonl", "both"}:
        multi.add(jsonl, on_error="ignore")
    if kind in {"sqlite", "both"}:
        multi.add(sqlite, on_error="ignore")
    for run in range(2):
        for event in events(session_id, count):
            await deliver(multi, event)  # type: ignore[arg-type]
            print(f"written {event.sequence}", flush=True)
        if run == 0:
            print("half", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
    problems = [each.problems for each in (jsonl, sqlite)]
    print(json.dumps([[each.lost_events, each.failures, each.messages] for each in problems]), flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(trace(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
