"""An agent that analyses a CSV file in a sandbox and saves the plots that it makes.

::

    python examples/csv_agent.py [CSV] [QUESTION]

It needs ANTHROPIC_API_KEY, and writes into `csv-agent-output`: plots, traces and the conversation.
"""
# ruff: noqa: T201

import asyncio
import sys
from pathlib import Path

from aeolus_sandbox import CodeInterpreterInput, CodeInterpreterTool
from aeolus_sandbox.agent.agent import Agent
from aeolus_sandbox.agent.context import AgentContext
from aeolus_sandbox.agent.results import ToolOutcome
from aeolus_sandbox.consumers import ConsoleConsumer, MultiConsumer, SqliteTraceConsumer, TraceConsumer
from aeolus_sandbox.storage.history import History

CSV = Path(__file__).with_name("harvest.csv")
QUESTION = "Which garden has the best harvest, and how does it change over the years? Draw one plot."
OUTPUT = Path("csv-agent-output")
PROMPT = (
    "You analyse the file data.csv with Python. Look at it before you answer, and answer in a few sentences."
)


class Workbench:
    """Python in a sandbox, where one file of the host is: the model writes code, and never a path of the host."""

    def __init__(self, csv: Path) -> None:
        self._csv = csv
        self._python = CodeInterpreterTool()

    async def run_python(self, code: str, context: AgentContext) -> ToolOutcome:
        """Run Python code; variables stay for the next call. pandas and matplotlib are there, and so is data.csv."""
        step = CodeInterpreterInput(
            code=code, session_id="analysis", files={"data.csv": self._csv}, timeout_s=60
        )
        async with context.stream_tool(self._python, step) as session:
            async for chunk in session:
                await context.emit(chunk)
        result = await session.finalize()
        summary = {"images": result.images, "time_ms": result.execution_time_ms}
        return ToolOutcome(result=summary, text=result.as_text(), success=result.success)


async def main(csv: Path, question: str) -> None:
    """Ask about a file; show the work, write it down, and say where."""
    traces = SqliteTraceConsumer(OUTPUT / "traces.db")
    consumer = (
        MultiConsumer()
        .add(ConsoleConsumer(plots_folder=OUTPUT / "plots"))
        .add(TraceConsumer(OUTPUT / "traces"), on_error="ignore")
        .add(traces, on_error="ignore")
    )
    async with (
        History(OUTPUT / "history.db") as history,
        Agent(
            name="csv",
            model="anthropic/claude-sonnet-4-5",
            system_prompt=PROMPT,
            tools=[Workbench(csv).run_python],
            thinking_tokens=2048,
            max_turns=20,
            history=history,
        ) as agent,
    ):
        session = await agent.run_streaming(question, consumer)
    print(
        f"conversation {session.session_id}: {session.turns} answers, {session.usage.output_tokens} tokens written"
    )


if __name__ == "__main__":
    _, *given = sys.argv
    asyncio.run(main(Path(given[0]) if given else CSV, given[1] if len(given) > 1 else QUESTION))
