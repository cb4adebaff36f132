"""The Python kernel's own process: ipykernel, made to lose nothing and to leave words when it crashes.

Run by path (`python -P .../python_kernel.py -f CONNECTION_FILE`), so that none of our modules is importable in it.
"""

import faulthandler
import json
import os
import sys
import time
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import zmq

# The debugger would take a tenth of the boot, and speaks to nobody here: ipykernel does without where it is not there.
sys.modules["debugpy"] = None  # type: ignore[assignment]
import ipykernel.debugger  # noqa: F401

del sys.modules["debugpy"]  # code that imports it gets it
from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from IPython.core.formatters import BaseFormatter
from jupyter_client import session as jupyter_session
from jupyter_client.jsonutil import json_clean, json_default
from traitlets import ObjectName, Unicode

_TABLE_TYPE: Final = "application/vnd.dataresource+json"
_CHART_TYPE: Final = "application/vnd.aeolus.chart+json"
_ANNOUNCEMENT: Final = "aeolus_question"
_FLUSH_S: Final = 0.0005


def pack_any_text(message: object) -> bytes:
    """Return the message as JSON in valid UTF-8.

    Jupyter's packer raises on a lone surrogate, and the output is lost:
    https://github.com/jupyter/notebook/issues/2680 . Here it becomes U+FFFD.
    """
    try:
        packed: bytes = jupyter_session.json_packer(message)
    except UnicodeEncodeError:
        text = json.dumps(json_clean(message), default=json_default, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    return packed


class FlushedOutStream(OutStream):
    """An output stream whose flush also gives the messaging thread the moment that it needs to write.

    Without it, what is printed and flushed just before the process is killed is lost one time in four.
    ipykernel waits as long at the end of every cell, printed or not; that is switched off in return.
    """

    def flush(self) -> None:
        """Send what was printed."""
        has_text = bool(getattr(self, "_buffers", True))
        super().flush()  # type: ignore[no-untyped-call]
        if has_text:
            time.sleep(_FLUSH_S)


@cache
def _sibling(name: str) -> ModuleType:
    """Return a module that is a file beside this one, loaded when it is first needed and importable by nobody."""
    spec = spec_from_file_location(f"_aeolus_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TableFormatter(BaseFormatter):
    """Shows DataFrames and Series as data, beside what they are shown as anyway."""

    format_type = Unicode(_TABLE_TYPE)
    print_method = ObjectName("_repr_data_resource_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    """Shows the data in matplotlib's figures beside their pictures, while a cell that wants it runs."""

    format_type = Unicode(_CHART_TYPE)
    _return_type = dict

    def __call__(self, obj: object) -> dict[str, Any] | None:
        """Return the data in a figure; None for anything else."""
        # Not as a printer for the type, which IPython removes when it chooses the formats of figures.
        figures = sys.modules.get("matplotlib.figure")
        if not (self.enabled and figures and isinstance(obj, figures.Figure)):
            return None
        chart: dict[str, Any] | None = _sibling("python_charts").chart_of(obj)
        return chart


class PythonKernel(IPythonKernel):
    """ipykernel that shows tables and charts as data too."""

    def __init__(self, **settings: Any) -> None:
        """Add the types to those that objects are shown in."""
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        formatter: Any = self.shell.display_formatter  # type: ignore[union-attr]
        tables: Any = TableFormatter(parent=formatter)
        self._charts = ChartFormatter(parent=formatter, enabled=False)
        # By name, so that nothing is imported; the second module is that of pandas before version 3.
        for module in ("pandas", "pandas.core.frame"):
            tables.for_type_by_name(module, "DataFrame", _table)
        for module in ("pandas", "pandas.core.series"):
            tables.for_type_by_name(module, "Series", _table)
        # Last: once a figure has been drawn, its ticks are where the picture shows them.
        formatter.formatters |= {_TABLE_TYPE: tables, _CHART_TYPE: self._charts}

    async def poll_stopped_queue(self) -> None:
        """Do nothing: there is no debugger that could stop."""

    def warm_up(self) -> None:
        """Load what first cells usually wait for; `python_warm_up` says how."""
        show = self.shell.display_formatter.format  # type: ignore[union-attr]
        _sibling("python_warm_up").warm_up(show, _sibling("python_charts"), _sibling("python_tables"))

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: dict[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> dict[str, Any]:
        """Run a cell; its metadata says whether the data in figures is wanted."""
        self._charts.enabled = bool((cell_meta or {}).get("aeolus_chart_data"))
        reply: dict[str, Any] = await super().do_execute(  # type: ignore[no-untyped-call]
            code, silent, store_history, user_expressions, allow_stdin, cell_meta=cell_meta, cell_id=cell_id
        )
        return reply

    def _input_request(self, prompt: str, ident: Any, parent: Any, password: bool = False) -> str:
        """Ask for a line, and say so on the output channel, behind all that was printed."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self.session.send(  # type: ignore[union-attr]
            self.iopub_socket, _ANNOUNCEMENT, {}, parent, ident=_ANNOUNCEMENT.encode()
        )
        return super()._input_request(prompt, ident, parent, password)


def _table(data: object) -> dict[str, Any] | None:
    resource: dict[str, Any] | None = _sibling("python_tables").data_resource(data)
    return resource


class PythonKernelApp(IPKernelApp):
    """ipykernel with an output socket that waits for a slow reader, where ipykernel's drops messages."""

    def init_iopub(self, context: zmq.Context[Any]) -> None:
        """Make the output socket."""
        self.session.pack = pack_any_text
        # A socket option set on the context is the default of the sockets made next; with it the output thread
        # waits at the high-water mark: https://libzmq.readthedocs.io/en/latest/zmq_setsockopt.html
        context.setsockopt(zmq.XPUB_NODROP, 1)
        try:
            super().init_iopub(context)  # type: ignore[no-untyped-call]
        finally:
            context.sockopts.pop(zmq.XPUB_NODROP)


def main() -> None:
    """Run the kernel until it ends."""
    _sibling("parent_death").end_with_parent()
    # ipykernel points descriptor 2 at the running cell, where a fault handler's words would die with the process:
    # keep the true one for them.
    faulthandler.enable(file=os.dup(2), all_threads=False)
    switches = [
        "--IPythonKernel._execute_sleep=0",
        f"--IPKernelApp.outstream_class={__name__}.FlushedOutStream",
        f"--IPKernelApp.kernel_class={__name__}.PythonKernel",
    ]
    PythonKernelApp.launch_instance([*sys.argv[1:], *switches])


if __name__ == "__main__":
    main()
