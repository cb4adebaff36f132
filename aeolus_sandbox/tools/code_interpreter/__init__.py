"""The code interpreter tool: code in a Jupyter kernel in a container, with text, images and errors as chunks."""

from aeolus_sandbox.tools.code_interpreter.models import (
    CodeChunk,
    CodeError,
    CodeInterpreterInput,
    CodeResult,
)
from aeolus_sandbox.tools.code_interpreter.tool import CodeInterpreterTool

__all__ = ["CodeChunk", "CodeError", "CodeInterpreterInput", "CodeInterpreterTool", "CodeResult"]
