"""How much a job's GPUs are used, by a management library that says what the test wants."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from hocket.agent.node.gpu_peaks import GpuPeaks
from hocket.agent.node.gpus import GpuUsage
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.protocol import Report, RunKey

FAKE = """
int less;  /* each halves what is taken */
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(index + 1);
    return index > 3;
}
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    rates[0] = 10 * (unsigned)(unsigned long)device;
    rates[1] = 77;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80ull << 30;
    memory[2] = ((unsigned long long)(unsigned long)device << 30) >> less;
    memory[1] = memory[0] - memory[2];
    return 0;
}
"""
REAL = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
USE = Report(RunKey("a", 1), 3, 1.0, "use", {"cores": 1.5})


@pytest.fixture
def library(tmp_path: Path) -> str:
    if shutil.which("cc") is None:
        pytest.skip("a library to ask is made with a C compiler")
    (tmp_path / "fake.c").write_text(FAKE)
    path = str(tmp_path / "libfake.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, str(tmp_path / "fake.c")], check=True)
    return path


def told(tmp_path: Path, library: str, env: dict[str, str], given: dict[str, str] | None = None) -> dict[str, object]:
    """The fields of a report of use of a run with that environment, and with the order to start."""
    state = StateFolder(str(tmp_path / "state"))
    folder = Path(state.make_run("a", 1))
    (folder / "spec.json").write_text(json.dumps({"job": "a", "env": env}))
    if given is not None:
        (folder / "start.json").write_text(json.dumps({"do": "start", "env": given, "workers": 1}))
    found = GpuUsage(state, library).added(USE)
    assert (found.run, found.n, found.event) == (USE.run, USE.n, USE.event)
    return found.fields


def test_the_devices_of_a_job_are_told_together(tmp_path: Path, library: str) -> None:
    found = told(tmp_path, library, {**REAL, "CUDA_VISIBLE_DEVICES": "0,2"})
    assert found == {"cores": 1.5, "gpu": 0.2, "gpu_mem_mib": 4096.0}


def test_what_was_prepared_has_the_devices_that_it_was_given_later(tmp_path: Path, library: str) -> None:
    found = told(tmp_path, library, {"CUDA_VISIBLE_DEVICES": ""}, {**REAL, "CUDA_VISIBLE_DEVICES": "3"})
    assert found == {"cores": 1.5, "gpu": 0.4, "gpu_mem_mib": 4096.0}


@pytest.mark.parametrize(
    "env",
    [{}, {"CUDA_VISIBLE_DEVICES": "0"}, {**REAL, "CUDA_VISIBLE_DEVICES": ""}, {**REAL, "CUDA_VISIBLE_DEVICES": "9"}],
)
def test_of_no_device_a_virtual_one_or_one_that_does_not_answer_nothing_is_told(
    tmp_path: Path, library: str, env: dict[str, str]
) -> None:
    assert told(tmp_path, library, env) == {"cores": 1.5}


def test_without_a_driver_and_of_other_reports_nothing_is_told(tmp_path: Path, library: str) -> None:
    assert told(tmp_path, "no-such-library.so", {**REAL, "CUDA_VISIBLE_DEVICES": "0"}) == {"cores": 1.5}
    other = Report(RunKey("a", 1), 3, 1.0, "progress", {})
    assert GpuUsage(StateFolder(str(tmp_path / "other")), library).added(other) is other


def test_the_end_of_a_run_says_the_most_memory_that_was_seen_on_one_of_its_devices(
    tmp_path: Path, library: str
) -> None:
    state = StateFolder(str(tmp_path / "state"))
    usage = GpuUsage(state, library, every_s=0.0)
    taken = ctypes.c_int.in_dll(ctypes.CDLL(library), "less")
    for job, devices in (("a", "0,2"), ("b", "1"), ("c", "3"), ("d", "3"), ("virtual", "")):
        folder = Path(state.make_run(job, 1))
        (folder / "spec.json").write_text(json.dumps({"job": job, "env": {**REAL, "CUDA_VISIBLE_DEVICES": devices}}))
    for less in (1, 0, 2):
        taken.value = less
        for job in "ab":
            report = Report(RunKey(job, 1), 3, 1.0, "epoch", {"epoch": 1})
            assert usage.added(report) is report  # Only what is used, and the end, say more.
    taken.value = 0
    for job in ("c", "d", "virtual"):
        usage.added(Report(RunKey(job, 1), 3, 1.0, "epoch", {}))

    def end(job: str) -> dict[str, object]:
        return usage.added(Report(RunKey(job, 1), 9, 2.0, "exited", {"code": 0})).fields

    assert end("a") == {"code": 0, "peak_gpu_mem_mib": 3072.0}
    assert end("b") == {"code": 0, "peak_gpu_mem_mib": 2048.0}
    assert end("b") == {"code": 0, "peak_gpu_mem_mib": 2048.0}  # It is said again where it was not delivered.
    assert end("c") == end("d") == end("virtual") == end("unknown") == {"code": 0}  # c and d were on one device.


def test_a_run_whose_job_was_forgotten_before_its_end_shares_no_device(tmp_path: Path, library: str) -> None:
    state = StateFolder(str(tmp_path / "state"))
    usage = GpuUsage(state, library, every_s=0.0)
    for job in ("prepared", "next"):
        folder = Path(state.make_run(job, 1))
        (folder / "spec.json").write_text(json.dumps({"job": job, "env": {**REAL, "CUDA_VISIBLE_DEVICES": "1"}}))
    usage.added(Report(RunKey("prepared", 1), 1, 1.0, "use", {}))
    state.forget("prepared")  # Its run is killed, and nothing of it is reported any more.
    usage.added(Report(RunKey("next", 1), 1, 1.0, "use", {}))
    ended = usage.added(Report(RunKey("next", 1), 2, 2.0, "exited", {"code": 0}))
    assert ended.fields == {"code": 0, "peak_gpu_mem_mib": 2048.0}


def test_the_end_of_a_long_run_is_kept_as_long_as_those_of_short_ones() -> None:
    peaks = GpuPeaks(lambda _run: True)
    peaks.note(RunKey("long", 1), {0: 500.0})
    for n in range(1000):
        peaks.note(RunKey("c", n), {1: 1.0})
        peaks.of_ended(RunKey("c", n))
    assert [peaks.of_ended(RunKey("long", 1)) for _ in range(2)] == [500.0, 500.0]


def test_a_device_that_another_run_has_left_is_a_runs_own() -> None:
    peaks = GpuPeaks(lambda _run: True)
    peaks.note(RunKey("a", 1), {0: 500.0})
    assert peaks.of_ended(RunKey("a", 1)) == 500.0
    peaks.note(RunKey("b", 1), {0: 700.0})
    peaks.note(RunKey("a", 1), {0: 700.0})  # A report of it that came late.
    assert peaks.of_ended(RunKey("b", 1)) == 700.0
    assert peaks.of_ended(RunKey("a", 1)) == 500.0
    for n in range(1000):
        peaks.note(RunKey("c", n), {1: 1.0})
        peaks.of_ended(RunKey("c", n))
    assert peaks.of_ended(RunKey("a", 1)) == 0.0  # They are not kept for ever.
