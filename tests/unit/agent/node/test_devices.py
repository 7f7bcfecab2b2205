"""What a machine has: found where there is a driver, declared where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from hocket.agent.node import devices
from hocket.agent.node.devices import Declared, Devices, discover
from hocket.agent.node.gpus import Gpu, nvidia_gpus
from hocket.model.resources import Node

GPUS = [Gpu(n, f"GPU-{n}{n}{n}{n}-aaaa", "NVIDIA H200", 143771.0 - n) for n in range(4)]


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvidia_gpus", lambda: list(GPUS))


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "nvidia_gpus", list)


def test_cores_and_memory_are_found() -> None:
    node = discover("n0").node
    assert 0 < node.cores <= len(os.sched_getaffinity(0))
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert 100 < node.mem_mib <= total_kib / 1024


@pytest.mark.usefixtures("no_gpus")
def test_virtual_devices_are_what_is_declared() -> None:
    found = discover("n0", Declared(4, "A100", 2.5, 1000.0))
    assert found.node == Node("n0", gpus=4, gpu_kind="A100", cores=2.5, mem_mib=1000.0)
    assert found.shown({"CUDA_VISIBLE_DEVICES": "3,0", "A": "b"}) == {"CUDA_VISIBLE_DEVICES": "3,0", "A": "b"}
    assert discover("n0").node.gpus == 0


@pytest.mark.usefixtures("four_gpus")
def test_real_devices_are_all_the_first_or_virtual_ones() -> None:
    assert discover("n0").node.gpus == 4
    assert discover("n0").node.gpu_kind == "NVIDIA H200"
    assert discover("n0").node.gpu_mem_mib == 143768.0
    assert discover("n0", Declared(gpus=2)).gpus == tuple(GPUS[:2])
    assert discover("n0", Declared(gpus=0)).node.gpu_kind == ""
    assert discover("n0", Declared(gpus=8)) == Devices(discover("n0", Declared(gpus=8)).node, ())
    assert discover("n0", Declared(gpus=8)).node.gpus == 8


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("visible", "indices"),
    [("2,3", [2, 3]), ("3, 1", [3, 1]), ("GPU-2222,0", [2, 0]), ("", []), ("1,9,2", [1]), ("GPU-", []), ("1,1", [1])],
)
def test_an_agent_gives_only_what_it_was_given(visible: str, indices: list[int]) -> None:
    assert [gpu.index for gpu in discover("n0", visible=visible).gpus] == indices


@pytest.mark.usefixtures("four_gpus")
def test_a_job_is_shown_the_devices_of_the_machine() -> None:
    found = discover("n0", visible="2,3")
    shown = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3"}
    assert found.shown({"CUDA_VISIBLE_DEVICES": "1"}) == shown
    assert found.shown({"CUDA_VISIBLE_DEVICES": ""}) == {"CUDA_VISIBLE_DEVICES": ""}
    assert found.shown({}) == {}


FAKE_DRIVER = """
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
static int down;
int nvmlInit_v2(void) { return down; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(0x700000000000ul + i); return i == 1 ? 15 : 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned n) { strncpy(s, "GPU-abc", n); return (long)d < 0x700000000000l; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { strncpy(s, "Fake 9000", n); return (long)d < 0x700000000000l; }
int nvmlDeviceGetMemoryInfo(void *d, memory *m) { m->total = 80ull << 30; return (long)d < 0x700000000000l; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_driver_is_asked_as_its_interface_says(tmp_path: Path) -> None:
    (tmp_path / "fake.c").write_text(FAKE_DRIVER)
    library = str(tmp_path / "libfake.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, str(tmp_path / "fake.c")], check=True)
    # Of three, one has fallen off the bus; the handles of the others do not fit into 32 bits.
    assert nvidia_gpus(library) == [Gpu(n, "GPU-abc", "Fake 9000", 81920.0) for n in (0, 2)]


def test_without_a_driver_there_is_none() -> None:
    assert nvidia_gpus("no-such-library.so.1") == []
