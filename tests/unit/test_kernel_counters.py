"""What Linux counts is read as it is written, for both versions of the control groups."""

from pathlib import Path

import pytest

from benchmarks.kernel_counters import (
    ContainerUse,
    ProcessUse,
    available_bytes,
    children_of,
    container_use,
    process_use,
    processes_about,
    processes_named,
    resident_bytes,
)

MIB = 2**20


def _file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _process(
    proc: Path, pid: int, name: str, *, parent: int = 1, ticks: tuple[int, int] = (0, 0), rss_kib: int = 0
) -> None:
    utime, stime = ticks
    _file(proc / f"{pid}/comm", f"{name[:15]}\n")
    _file(
        proc / f"{pid}/stat", f"{pid} ({name}) S {parent} 1 1 0 -1 4194304 9 9 9 9 {utime} {stime} 0 0 20 0\n"
    )
    _file(proc / f"{pid}/status", f"Name:\t{name}\nVmHWM:\t  9999 kB\nVmRSS:\t  {rss_kib} kB\n")
    _file(proc / f"{pid}/cmdline", f"/usr/bin/{name}\0-id\0c0ffee{pid}\0")


def test_version_1_counts_what_goes_with_the_container_apart_from_files_that_others_share(
    tmp_path: Path,
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    _file(
        proc / "7/cgroup",
        "5:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/x\n",
    )
    _file(
        groups / "memory/docker/abc/memory.stat",
        f"cache 1\nrss 2\ntotal_cache {10 * MIB}\ntotal_rss {3 * MIB}\ntotal_shmem {MIB}\n",
    )
    _file(groups / "memory/docker/abc/memory.kmem.usage_in_bytes", f"{2 * MIB}\n")
    _file(groups / "cpuacct/docker/abc/cpuacct.usage", "1500000000\n")
    assert container_use(7, proc=proc, cgroups=groups) == ContainerUse(6 * MIB, 9 * MIB, 1.5)


def test_version_2_counts_the_same(tmp_path: Path) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    _file(proc / "7/cgroup", "0::/system.slice/docker-abc.scope\n")
    folder = groups / "system.slice/docker-abc.scope"
    _file(folder / "memory.stat", f"anon {3 * MIB}\nfile {10 * MIB}\nkernel {2 * MIB}\nshmem {MIB}\n")
    _file(folder / "cpu.stat", "usage_usec 1500000\nuser_usec 1000000\n")
    assert container_use(7, proc=proc, cgroups=groups) == ContainerUse(6 * MIB, 9 * MIB, 1.5)


def test_a_container_whose_counters_cannot_be_read_has_no_number(tmp_path: Path) -> None:
    _file(tmp_path / "proc/7/cgroup", "0::/gone\n")
    with pytest.raises(OSError, match=r"memory\.stat"):
        container_use(7, proc=tmp_path / "proc", cgroups=tmp_path / "cgroup")


def test_processes_are_found_by_name_by_argument_and_by_parent(tmp_path: Path) -> None:
    _process(tmp_path, 10, "containerd-shim-runc-v2")
    _process(tmp_path, 11, "containerd", parent=10)
    _process(tmp_path, 12, "a (strange) name", parent=10)
    _file(tmp_path / "self/comm", "containerd\n")  # not a number: no process of its own
    assert processes_named(["containerd-shim-runc-v2"], proc=tmp_path) == [10]
    assert sorted(processes_named(["containerd-shim-runc-v2", "containerd"], proc=tmp_path)) == [10, 11]
    assert processes_about(["c0ffee11", "c0ffee99"], [10, 11, 404], proc=tmp_path) == [11]
    assert sorted(children_of(10, proc=tmp_path)) == [11, 12]


def test_processes_share_of_memory_is_taken_and_else_all_that_they_see(tmp_path: Path) -> None:
    _process(tmp_path, 10, "one", ticks=(150, 50), rss_kib=8)
    _process(tmp_path, 11, "two", ticks=(100, 0), rss_kib=8)
    _file(tmp_path / "11/smaps_rollup", "00400000-7fff rollup\nRss:   8 kB\nPss:   3 kB\nPss_Anon:  1 kB\n")
    used = process_use([10, 11, 404], proc=tmp_path)
    assert used.memory_bytes == 11 * 1024
    assert used.cpu_s == pytest.approx(3.0)  # at 100 ticks a second, as everywhere on Linux
    assert process_use([404], proc=tmp_path) == ProcessUse()
    assert resident_bytes(10, proc=tmp_path) == 8 * 1024


def test_available_memory_is_read(tmp_path: Path) -> None:
    _file(tmp_path / "meminfo", "MemTotal:  100 kB\nMemFree:  10 kB\nMemAvailable:   64 kB\n")
    assert available_bytes(proc=tmp_path) == 64 * 1024
