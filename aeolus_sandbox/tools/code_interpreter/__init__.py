"""The code interpreter tool: code in a Jupyter kernel in a container, with text, images and errors as chunks."""

from aeolus_sandbox.tools.code_interpreter.analysis import CodeFinding, CodePolicy
from aeolus_sandbox.tools.code_interpreter.artifacts import Artifact
from aeolus_sandbox.tools.code_interpreter.charts import (
    BoxSummary,
    Chart,
    ChartAxis,
    ChartPlot,
    ChartSeries,
)
from aeolus_sandbox.tools.code_interpreter.models import (
    CodeChunk,
    CodeError,
    CodeInterpreterInput,
    CodeResult,
)
from aeolus_sandbox.tools.code_interpreter.tables import Table, TableColumn
from aeolus_sandbox.tools.code_interpreter.tool import CodeInterpreterTool

__all__ = [
    "Artifact",
    "BoxSummary",
    "Chart",
    "ChartAxis",
    "ChartPlot",
    "ChartSeries",
    "CodeChunk",
    "CodeError",
    "CodeFinding",
    "CodeInterpreterInput",
    "CodeInterpreterTool",
    "CodePolicy",
    "CodeResult",
    "Table",
    "TableColumn",
]
