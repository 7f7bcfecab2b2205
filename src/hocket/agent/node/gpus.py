"""The GPUs of this machine and how much they are used, by NVIDIA's management library and without a CUDA context."""

from __future__ import annotations

import ctypes
import json
import os
from math import inf
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from hocket.agent.node.gpu_peaks import GpuPeaks
from hocket.agent.node.known_run import CLOSED, HAND_OVER
from hocket.agent.node.state_folder import StateFolder
from hocket.agent.protocol import Report, RunKey
from hocket.agent.run_folder import SPEC

_LIBRARY = "libnvidia-ml.so.1"
_TEXT = 96
_EVERY_S = 1.0  # between two looks at the memory of a run
_ENDS = ("exited", "cannot-start", "lost")


class Gpu(Struct, frozen=True):
    """One device, by the index that it has in the order of the PCI bus."""

    index: int
    uuid: str
    name: str
    mem_mib: float


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def nvidia_gpus(library: str = _LIBRARY) -> list[Gpu]:
    """All that can be used; none where there is no driver, or it does not answer."""
    try:
        nvml = ctypes.CDLL(library)
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        found = [_gpu(nvml, index) for index in range(count.value)]
        return [gpu for gpu in found if gpu is not None]
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: ctypes.CDLL, index: int) -> Gpu | None:
    device, memory = ctypes.c_void_p(), _Memory()
    uuid, name = ctypes.create_string_buffer(_TEXT), ctypes.create_string_buffer(_TEXT)
    if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
        return None  # It has fallen off the bus, or belongs to another user.
    answers = (
        nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_TEXT)),
        nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT)),
        nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)),
    )
    if any(answers):
        return None
    return Gpu(index, uuid.value.decode(), name.value.decode(), memory.total / (1 << 20))


class GpuUsage:
    """How much the GPUs of jobs are used; nothing where there is no driver, and for virtual devices.

    The agent asks, once for all jobs: the library in each sidecar would cost more memory than a sidecar itself. The
    library measures devices, so the usage of a shared one includes that of its other jobs.
    """

    def __init__(self, state: StateFolder, library: str = _LIBRARY, every_s: float = _EVERY_S) -> None:
        self._state, self._every_s = state, every_s
        self._nvml = _loaded(library)
        self._peaks = GpuPeaks(lambda run: bool(self._devices_of(run)))
        self._looked_s: dict[RunKey, float] = {}  # when, at the memory of a run

    def added(self, report: Report) -> Report:
        """A report of what a job uses, with its GPUs, or of its end, with the most memory seen on one of them.

        At any other report there is a look at its memory: frameworks keep what they took once until they end.
        """
        if self._nvml is None:
            return report
        if report.event in _ENDS:
            self._looked_s.pop(report.run, None)
            peak_mib = self._peaks.of_ended(report.run)
            return replace(report, fields={**report.fields, "peak_gpu_mem_mib": peak_mib}) if peak_mib else report
        now_s, is_use = monotonic(), report.event == "use"
        if not is_use and now_s - self._looked_s.get(report.run, -inf) < self._every_s:
            return report
        self._looked_s[report.run] = now_s
        share, mib_by_device = _look(self._nvml, self._devices_of(report.run))
        self._peaks.note(report.run, mib_by_device)
        if not is_use or not mib_by_device:
            return report
        found = {"gpu": round(share, 3), "gpu_mem_mib": round(sum(mib_by_device.values()), 1)}
        return replace(report, fields={**report.fields, **found})

    def _devices_of(self, run: RunKey) -> list[int]:
        return _devices(self._state.run(run.job, run.number))


def _look(nvml: ctypes.CDLL, indices: list[int]) -> tuple[float, dict[int, float]]:
    """The share of time in which they worked, and memory that is taken on each; nothing if one does not answer."""
    shares, mib_by_device = [], {}
    for index in indices:
        device, rates, memory = ctypes.c_void_p(), (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0
            or nvml.nvmlDeviceGetUtilizationRates(device, rates) != 0  # of the device, of its memory's bus
            or nvml.nvmlDeviceGetMemoryInfo(device, memory) != 0  # in all, free, used
        ):
            return 0.0, {}
        shares.append(rates[0] / 100)
        mib_by_device[index] = round(memory[2] / (1 << 20), 1)
    return sum(shares) / max(len(shares), 1), mib_by_device


def _devices(folder: str) -> list[int]:
    """The devices of a run, by the driver's numbers. Only real ones are put in the order of the bus (`devices.py`)."""
    env: dict[str, Any] = {}
    for name in (SPEC, CLOSED, HAND_OVER):  # With the order to start come other devices than it was prepared with.
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found = json.load(file)
            env |= found["env"]
        except (OSError, ValueError, TypeError, KeyError):
            continue
    visible = str(env.get("CUDA_VISIBLE_DEVICES", "")) if env.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" else ""
    return [int(part) for part in visible.split(",") if part.isdecimal()]


def _loaded(library: str) -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL(library)
        return nvml if nvml.nvmlInit_v2() == 0 else None
    except (OSError, AttributeError):
        return None
