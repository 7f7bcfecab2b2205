"""The network between an agent and its controller, which can be cut in one direction or in both, and mended."""

import selectors
import socket
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Cable:
    """Listens on a port of its own, and passes on every connection; what is cut waits, as packets that are lost do."""

    def __init__(self, url: str) -> None:
        self._to = (urlsplit(url).hostname, urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._passes = {"up": True, "down": True}  # from the agent to the controller, and back
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed = True
        self._listener.close()

    @property
    def url(self) -> str:
        """Where the agent finds the controller."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, *directions: str) -> None:
        """Nothing comes through any more, in these directions."""
        for direction in directions:
            self._passes[direction] = False

    def mend(self) -> None:
        """All comes through again."""
        self._passes = {"up": True, "down": True}

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        # A connection needs both directions to be made.
        while not all(self._passes.values()) and not self._closed:
            time.sleep(0.02)
        try:
            far = socket.create_connection(self._to)
        except OSError:
            near.close()
            return
        with near, far, selectors.DefaultSelector() as selector:
            ends = {near: (far, "up"), far: (near, "down")}
            for end in ends:
                selector.register(end, selectors.EVENT_READ)
            while not self._closed:
                for key, _ in selector.select(0.1):
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    other, direction = ends[end]
                    if not self._passes[direction]:
                        time.sleep(0.02)
                        continue
                    try:
                        data = end.recv(1 << 16)
                        other.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
