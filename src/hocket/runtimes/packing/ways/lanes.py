"""A lane for each model: a stream, and the memory of the graphs that are captured there.

Whoever comes next takes over both. Libraries keep memory for every stream they ever saw, and a graph with memory of its
own would ask the driver for it at every capture, while that of the graphs before it lies idle.
"""

from __future__ import annotations

from typing import Any

import torch


class Lane:
    """One stream and its memory. Graphs of one lane are never replayed at the same time."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._holder: torch.cuda.CUDAGraph | None = None

    def pool(self) -> Any:
        """Memory to capture in. A graph that is never replayed holds it, for without any graph it would be gone."""
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


class Lanes:
    """Lanes by model, and those that nobody has."""

    def __init__(self) -> None:
        self._by_name: dict[str, Lane] = {}
        self._spare: list[Lane] = []

    def of(self, name: str) -> Lane:
        """This model's; that of "" is nobody's in particular."""
        if name not in self._by_name:
            self._by_name[name] = self._spare.pop() if self._spare else Lane()
        return self._by_name[name]

    def give_back(self, name: str) -> None:
        """The model has left."""
        if name in self._by_name:
            self._spare.append(self._by_name.pop(name))

    def forget_spare(self) -> None:
        """Memory is short: what lies idle is given back."""
        for lane in self._spare:
            lane.forget()
