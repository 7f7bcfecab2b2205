"""Keeps the machine code of kernels on disk, beside the modules they are in, as Python keeps its bytecode."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from hocket.runtimes.paramserver.cache_folder import cache_folder
from hocket.runtimes.paramserver.kernel_compiler import MachineCode

_DIGEST = hashlib.sha256().digest_size


class KernelCache:
    """The machine code of one kernel. A file that is damaged, or of another version of the kernel, is not used."""

    def __init__(self, module_file: str, name: str, fingerprint: bytes) -> None:
        self._name, self._fingerprint = name, fingerprint
        module = Path(module_file)
        self._folders = [module.parent / "__pycache__"] if module.is_file() else []  # It may have been typed in.
        if (own := cache_folder("kernels")) is not None:  # for users who may not write where Hocket is installed
            self._folders.append(own)

    def load(self, key: str) -> MachineCode | None:
        """What was kept for this machine and these types of arguments."""
        for folder in self._folders:
            try:
                content = (folder / self._file(key)).read_bytes()
            except OSError:
                continue
            digest, fingerprint = content[:_DIGEST], content[_DIGEST : 2 * _DIGEST]
            if fingerprint == self._fingerprint and hashlib.sha256(content[_DIGEST:]).digest() == digest:
                return msgspec.msgpack.decode(content[2 * _DIGEST :], type=MachineCode)
        return None

    def store(self, key: str, code: MachineCode) -> None:
        """Keep it, if there is a folder that can be written to."""
        content = self._fingerprint + msgspec.msgpack.encode(code)
        for folder in self._folders:
            unfinished = folder / f".{self._file(key)}-{os.getpid()}"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                unfinished.write_bytes(hashlib.sha256(content).digest() + content)
                unfinished.replace(folder / self._file(key))
                return
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)

    def _file(self, key: str) -> str:
        return f"{self._name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.kernel"
