"""Which server is nearest to the ideal host of a task, and which of its GPUs (MLFS, section 3.3.2).

The ideal host has the least use of every resource that any candidate has, has most of the data that the task
exchanges, and does not slow the task down by moving it. Data are divided by the most that any candidate has.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from hocket.policies.mlfs.board import Board

if TYPE_CHECKING:
    from hocket.policies.mlfs.shapes import Column


class Hosts:
    """The servers that could take a task that needs so much; kept up to date with the board.

    `accepts` marks the servers that the job accepts; None stands for all.
    """

    __slots__ = ("_accepts", "_amounts", "_board", "_loads", "_seen", "_use")

    def __init__(self, board: Board, needs: Column, accepts: Any = None) -> None:
        import numpy as np

        self._board, self._amounts, self._accepts = board, needs.tolist(), accepts
        self._seen = len(board.touched)
        gpus, server_of = board.fits(needs), board.ground.server_of
        if accepts is not None:
            gpus &= accepts[server_of]
        self._loads = np.where(gpus, board.gpu_load, inf)  # of the GPUs that could take it
        servers = np.zeros(len(board.use), dtype=bool)
        servers[server_of[gpus]] = True
        self._use: Column = np.where(servers[:, None], board.use, inf)  # of the servers that could; of others infinite

    def best_gpu(self, traffic_mib: dict[int, float], stays: int = -1, degradation: float = 0.0) -> int:
        """The least loaded GPU of the server nearest to the ideal host; -1 if the task fits nowhere.

        `traffic_mib` is what the task exchanges with those on a server. `degradation` counts for every server but the
        one where it is, `stays`.
        """
        import numpy as np

        self._look_again()
        use = self._use
        ideal = np.minimum.reduce(use) if len(use) else None
        if ideal is None or ideal[0] == inf:
            return -1
        off = use - ideal
        distance = np.einsum("ij,ij->i", off, off)
        if traffic_mib:
            there = {s: mib for s, mib in traffic_mib.items() if distance[s] < inf}
            if most := max(there.values(), default=0.0):
                distance += 1.0
                for s, mib in there.items():
                    distance[s] += (1.0 - mib / most) ** 2 - 1.0
        if degradation:
            here = distance[stays] if stays >= 0 else inf
            distance += degradation**2
            if stays >= 0:
                distance[stays] = here
        server = int(distance.argmin())
        begins, ends = self._board.ground.begins[server : server + 2]
        return int(begins + self._loads[begins:ends].argmin())

    def _look_again(self) -> None:
        """Work out anew what was touched since. Few GPUs at a time: plain numbers are faster than columns here."""
        board = self._board
        if self._seen == len(board.touched):
            return
        for server in set(board.touched[self._seen :]):
            begins, ends = board.ground.begins[server : server + 2]
            loads = board.gpu_loads(server, self._amounts)
            self._loads[begins:ends] = loads
            accepted = self._accepts is None or self._accepts[server]
            ok = accepted and min(loads) < inf and board.bears(server, self._amounts)
            self._use[server] = board.use[server] if ok else inf
        self._seen = len(board.touched)
