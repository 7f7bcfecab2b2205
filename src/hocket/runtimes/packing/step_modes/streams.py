"""A CUDA stream for each model, with the memory pool of the graphs that are captured on it.

The next model reuses both. Libraries keep memory for every stream they ever saw, and a graph with memory of its
own would ask the driver for it at every capture, while that of earlier graphs is unused.
"""

from __future__ import annotations

from typing import Any

import torch


class CaptureStream:
    """One stream and its memory. Graphs of one stream are never replayed at the same time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._holder: torch.cuda.CUDAGraph | None = None

    def pool(self) -> Any:
        """Memory for captures. A graph that is never replayed keeps it, since it is freed when no graph uses it."""
        if self._holder is None:
            mark = torch.zeros(1, device=self.stream.device)
            holder = torch.cuda.CUDAGraph()
            self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
            with torch.cuda.stream(self.stream):
                holder.capture_begin(capture_error_mode="thread_local")
                mark.zero_()  # PyTorch warns of a graph without work.
                holder.capture_end()
            self._holder = holder
        return self._holder.pool()

    def forget(self) -> None:
        """Its memory is given back once no graph needs it."""
        self._holder = None


class CaptureStreams:
    """Streams by model, and unused ones."""

    def __init__(self) -> None:
        self._by_name: dict[str, CaptureStream] = {}
        self._spare: list[CaptureStream] = []

    def of(self, name: str) -> CaptureStream:
        """The stream of this model; "" is for work of all."""
        if name not in self._by_name:
            self._by_name[name] = self._spare.pop() if self._spare else CaptureStream()
        return self._by_name[name]

    def give_back(self, name: str) -> None:
        """The model was freed: its stream may be reused."""
        if name in self._by_name:
            self._spare.append(self._by_name.pop(name))

    def forget_spare(self) -> None:
        """Give back the memory of unused streams."""
        for capture_stream in self._spare:
            capture_stream.forget()
