"""Working directories that are sent along with jobs: packed here, and uploaded if the controller lacks them."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from hocket.agent.bundle import PART_BYTES, bundled, pack
from hocket.cli.terminal.progress import watching

if TYPE_CHECKING:
    from hocket.cli.live.client import Client

_MIB = 1 << 20


class Bundles:
    """Within `with`: the bundles that jobs of one command need, each packed once."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._by_path: dict[str, str] = {}  # folder → digest
        self.extra: dict[str, bytes] = {}  # files that are in each of them beside those of the folder
        self.empty = ""  # a folder that is removed at the end: what a job has no folder for is in `extra`

    def __enter__(self) -> Bundles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()
        if self.empty:
            os.rmdir(self.empty)

    def pack(self, path: str) -> str:
        """The digest of the bundle of a folder. Raises BundleError and OSError."""
        if path not in self._by_path:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="hocket-bundle-", ignore_cleanup_errors=True)
            mib = sum(entry.status.st_size for entry in bundled(path)) // _MIB
            done = 0

            def packed(count: int) -> None:
                nonlocal done
                done += count

            file = os.path.join(self._folder.name, str(len(self._by_path)))
            with watching("packing", mib, lambda: done // _MIB, "MiB"):
                digest = pack(path, file, packed, self.extra)
            os.rename(file, os.path.join(self._folder.name, digest))
            self._by_path[path] = digest
        return self._by_path[path]

    def upload(self, client: Client) -> None:
        """Send what the controller lacks."""
        for digest in dict.fromkeys(self._by_path.values()):
            if not client.get(f"/v1/bundles/{digest}").json()["is_there"]:
                self._send(client, digest)

    def _send(self, client: Client, digest: str) -> None:
        assert self._folder is not None
        with open(os.path.join(self._folder.name, digest), "rb") as file:
            size, offset = os.fstat(file.fileno()).st_size, 0
            with watching("uploading", size // _MIB, lambda: offset // _MIB, "MiB"):
                while part := file.read(PART_BYTES):
                    client.put_bytes(f"/v1/bundles/{digest}/{offset}?size={size}", part)
                    offset += len(part)
