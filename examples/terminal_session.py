"""An interactive program in a sandbox: send it input, read what it says, take its exit code."""
# ruff: noqa: T201

import asyncio

from aeolus_sandbox import SessionManager, TerminalInput, TerminalTool, Text


async def main() -> None:
    """Talk to a Python prompt."""
    async with SessionManager() as manager:
        command = TerminalInput(command="python3 -i", timeout_s=60)
        async with await manager.open(TerminalTool(), command) as session:
            await session.send_stdin(Text("print('hello', 6 * 7)\n"))
            await session.send_stdin(Text("exit(3)\n"))
            async for chunk in session:
                print(chunk.text, end="", flush=True)
        result = await session.finalize()
    print(f"it ended: {result.status}")


if __name__ == "__main__":
    asyncio.run(main())
