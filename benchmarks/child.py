"""Programs that a benchmark starts: run to their end, killed with the benchmark, and heard when they fail."""

import asyncio


async def output_of(*argv: str, keeps_output: bool = True) -> bytes:
    """Run a program and return what it prints, or nothing where that is not kept.

    Raises:
        RuntimeError: It failed; with its last words.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if keeps_output else asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        msg = f"{argv[0]} failed: {complaint.decode('utf-8', 'replace')[-500:]}"
        raise RuntimeError(msg)
    return output or b""
