"""Analysis of code for patterns that are dangerous, before it runs: advice, and no barrier."""

from aeolus_sandbox.tools.code_interpreter.analysis.analyser import analyse, enforce
from aeolus_sandbox.tools.code_interpreter.analysis.findings import CodeFinding, CodePolicy

__all__ = ["CodeFinding", "CodePolicy", "analyse", "enforce"]
