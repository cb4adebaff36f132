"""The terminal tool: a command in a container, on a terminal or on pipes."""

from aeolus_sandbox.tools.terminal.models import TerminalChunk, TerminalInput, TerminalResult
from aeolus_sandbox.tools.terminal.tool import TerminalTool

__all__ = ["TerminalChunk", "TerminalInput", "TerminalResult", "TerminalTool"]
