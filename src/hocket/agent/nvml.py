"""The GPUs of this machine, as NVIDIA's management library tells them: without a package, or a CUDA context."""

from __future__ import annotations

import ctypes

from msgspec import Struct

_LIBRARY = "libnvidia-ml.so.1"
_TEXT = 96


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
        return None  # It has fallen off the bus, or belongs to somebody else.
    answers = (
        nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_TEXT)),
        nvml.nvmlDeviceGetName(device, name, ctypes.c_uint(_TEXT)),
        nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)),
    )
    if any(answers):
        return None
    return Gpu(index, uuid.value.decode(), name.value.decode(), memory.total / (1 << 20))
