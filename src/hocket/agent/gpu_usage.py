"""How much the GPUs that a job holds are used, as NVIDIA's management library tells it, and without a CUDA context.

The agent asks, once for all jobs: the library in each sidecar would cost more memory than a sidecar itself. It is told
by device, so what neighbours on a shared one use is in it.
"""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

from msgspec.structs import replace

from hocket.agent.known_run import CLOSED, HAND_OVER
from hocket.agent.protocol import Report
from hocket.agent.run_folder import SPEC
from hocket.agent.state_folder import StateFolder

_LIBRARY = "libnvidia-ml.so.1"


class GpuUsage:
    """Where there is no driver, and for virtual devices, there is nothing to tell."""

    def __init__(self, state: StateFolder, library: str = _LIBRARY) -> None:
        self._state = state
        self._nvml = _loaded(library)

    def added(self, report: Report) -> Report:
        """A report of what a job uses, with its GPUs; any other as it is."""
        if self._nvml is None or report.event != "use":
            return report
        found = _look(self._nvml, _devices(self._state.run(report.run.job, report.run.number)))
        return replace(report, fields={**report.fields, **found})


def _look(nvml: ctypes.CDLL, indices: list[int]) -> dict[str, float]:
    """The share of time in which they worked, and memory that is taken on them; nothing if one does not answer."""
    shares, mem_bytes = [], 0
    for index in indices:
        device, rates, memory = ctypes.c_void_p(), (ctypes.c_uint * 2)(), (ctypes.c_ulonglong * 3)()
        if (
            nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0
            or nvml.nvmlDeviceGetUtilizationRates(device, rates) != 0  # of the device, of its memory's bus
            or nvml.nvmlDeviceGetMemoryInfo(device, memory) != 0  # in all, free, used
        ):
            return {}
        shares.append(rates[0] / 100)
        mem_bytes += memory[2]
    return (
        {"gpu": round(sum(shares) / len(shares), 3), "gpu_mem_mib": round(mem_bytes / (1 << 20), 1)} if shares else {}
    )


def _devices(folder: str) -> list[int]:
    """The devices of a run, by the driver's numbers. Only real ones are put in the order of the bus (`devices.py`)."""
    env: dict[str, Any] = {}
    for name in (SPEC, CLOSED, HAND_OVER):  # With the order to start come other devices than it was prepared with.
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found = json.load(file)
            env |= found if name == HAND_OVER else found["env"]
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
