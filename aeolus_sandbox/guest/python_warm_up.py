"""Does ahead what makes a first plot and a first table slow, and leaves nothing of it but loaded modules.

It runs inside the kernel's process, from a file beside `python_kernel`, while the kernel waits for its first cell.

matplotlib.pyplot chooses its backend, and changes its settings with it, when the first figure is made. That stays to
the first cell (importing matplotlib_inline is enough for it): here, a figure without pyplot goes the way of the others.
"""

import ctypes
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def warm_up(show: Callable[[object], object], charts: Any, tables: Any) -> None:
    """Load what first cells usually wait for; what is missing in this image is passed over.

    Args:
        show: Returns an object in all its formats.
        charts: The module that reads figures.
        tables: The module that reads tables.
    """
    # Whatever fails here fails again where it is used, and is told there.
    with suppress(Exception):
        _draw(charts)
    with suppress(Exception):
        _print_table(show, tables)
    _settle()


def _draw(charts: Any) -> None:
    import matplotlib.pyplot
    from IPython.core.pylabtools import print_figure
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        figure = Figure()
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        axes.plot([0.0, 1.0], [-1.0, 1.0], label="a")
        axes.bar([0, 1], [1, 2])
        axes.set(title="a", xlabel="x", ylabel="y")
        axes.legend()
        print_figure(figure, "png", "tight")  # type: ignore[no-untyped-call,unused-ignore]
        charts.chart_of(figure)


def _print_table(show: Callable[[object], object], tables: Any) -> None:
    import pandas as pd  # type: ignore[import-untyped,import-not-found,unused-ignore]

    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, None], "c": ["x", "y"]})
    show(frame)
    show(frame["b"].describe())
    tables.data_resource(frame)


def _settle() -> None:
    """Give back what was needed for a moment, and have later collections pass over what stays for good."""
    gc.collect()
    gc.freeze()
    with suppress(AttributeError, OSError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)
