"""The figures of `density` and `churn`, made of what their programs have measured."""

import pytest

from benchmarks import churn, churn_run, density, density_run
from benchmarks.results import Figure

MIB = 2**20


def _idle(**changes: float) -> density_run.Measured:
    usual = {
        "count": 100,
        "seconds": 20.0,
        "container_bytes": 1.0 * MIB,
        "cache_bytes": 50.0 * MIB,
        "shim_bytes": 2.0 * MIB,
        "daemon_bytes": 0.5 * MIB,
        "host_bytes": 0.5 * MIB,
        "available_bytes": 4.0 * MIB,
        "host_cpu_s": 0.1,
        "container_cpu_s": 0.02,
        "engine_cpu_s": 1.0,
    }
    return density_run.Measured.model_validate(usual | changes)


def _churned(**changes: object) -> churn_run.Measured:
    usual: dict[str, object] = {
        "sessions": 200,
        "seconds": 50.0,
        "failures": [],
        "left": {},
        "grown": {},
        "bytes_each": 512.0,
        "memory": [(1, 100), (2, 612)],
    }
    return churn_run.Measured.model_validate(usual | changes)


def _named(figures: list[Figure], words: str) -> Figure:
    [found] = [figure for figure in figures if words in figure.name]
    return found


def test_what_fits_counts_all_that_one_takes_but_not_files_that_others_share() -> None:
    fit = _named(list(density._figures("shells", _idle())), "fit into")
    assert fit.value == 1024
    assert "4.00 MiB each: container 1.00, shim 2.00, daemons 0.50, host process 0.50" in fit.measured


def test_idle_shells_are_held_to_memory_and_processor_time() -> None:
    figures = list(density._figures("shells", _idle(host_bytes=101 * 1024, host_cpu_s=0.2)))
    assert _named(figures, "memory of the host process").met is False
    assert _named(figures, "CPU").value == pytest.approx(1.1)
    assert _named(figures, "CPU").met is False
    figures = list(density._figures("shells", _idle(host_bytes=99 * 1024)))
    assert _named(figures, "memory of the host process").met is True
    assert _named(figures, "CPU").value == pytest.approx(0.6)
    assert _named(figures, "CPU").met is True


def test_anything_that_is_left_is_a_leak_and_is_named() -> None:
    clean = _named(churn._figures(_churned(), 4.0), "left of 200 sessions")
    assert (clean.met, clean.measured) == (True, "none")
    leaking = _named(
        churn._figures(_churned(left={"containers": 1, "files": 2}), 4.0), "left of 200 sessions"
    )
    assert (leaking.met, leaking.value, leaking.measured) == (False, 3, "1 containers, 2 files")


def test_what_the_engine_keeps_for_others_is_not_called_ours() -> None:
    left = {"engine's goroutines": 30, "engine's files": 4}
    assert _named(churn._figures(_churned(left=left), 4.0), "left of 200 sessions").met is True


def test_growth_with_each_session_is_a_leak_while_the_manager_is_open() -> None:
    few = _named(churn._figures(_churned(grown={"files": 3}), 4.0), "growth while")
    assert (few.met, few.value) == (True, 1.5)
    many = _named(churn._figures(_churned(grown={"files": 3, "tasks": 200}), 4.0), "growth while")
    assert (many.met, many.value) == (False, 100)
    assert "tasks" in many.measured


def test_memory_that_grows_with_the_sessions_is_measured_by_its_slope() -> None:
    assert churn_run._slope([(0, 1_000_000), (100, 1_300_000), (200, 1_600_000)]) == pytest.approx(3000)
    assert churn_run._slope([(5, 1_000_000)]) == 0
    figures = churn._figures(_churned(bytes_each=3000.0), 4.0)
    assert _named(figures, "host memory").met is False
