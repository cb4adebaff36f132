"""Made-up runs of the benchmarks."""

from benchmarks.results import Benchmark, Figure, Grid, Machine, Run, Series

MISSING = "the engine has no runtime runsc"


def made_up_run(*benchmarks: Benchmark) -> Run:
    """Return a run of these benchmarks."""
    return Run(
        version="0",
        started="2000-01-01T00:00:00+00:00",
        command="scripts/bench",
        quick=False,
        seconds=12.0,
        machine=Machine(
            processor="a processor",
            processors=2,
            memory_gib=1.0,
            system="Linux",
            python="3.11",
            engine="an engine",
            runtimes=["crun", "runc"],
            load_before=(0.0, 0.0, 0.0),
        ),
        benchmarks=list(benchmarks),
    )


def with_samples() -> Benchmark:
    """Return a benchmark of three contenders: one is good, one failed once, one is not available."""
    return Benchmark(
        name="latency",
        series={
            "ours": Series(unit="ms", samples=[1.0, 2.0, 3.0]),
            "other": Series(unit="ms", samples=[10.0, None, 30.0], failures=["round 2: OSError('gone')"]),
            "gVisor": Series(unit="ms", unavailable=MISSING),
        },
        figures=[Figure(name="ours", target="≤ 5 ms", measured="2 ms", value=2.0, met=True)],
        seconds=11.0,
        budget_s=10.0,
    )


def with_grid() -> Benchmark:
    """Return a benchmark with a grid, one of whose columns is not available."""
    grid = Grid(
        title="What isolation costs",
        unit="times",
        columns=["runc", "gVisor"],
        rows={"getpid (bare 0.1 µs)": [1.25, None], "start": [20.0, None]},
        absent={"gVisor": MISSING},
        even=1.0,
    )
    return Benchmark(name="overhead", series={}, figures=[], grids=[grid])
