"""Checkpoints: one version of the whole model and of all blocks' states, in a folder that is there whole or not at all.

Host 0 writes it, for all hosts: so hosts need no shared disk, and training can go on with another number of them.
"""

from __future__ import annotations

import io
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import msgspec
import numpy as np
from msgspec import Struct
from numpy.lib.npyio import NpzFile

from hocket.runtimes.paramserver.algorithm import Array, TrainingError, content_of
from hocket.runtimes.paramserver.pull_plan import ArrayLayout

_FORMAT = 1
_PREFIX = "iteration-"
_PART = ".part"
_MANIFEST = "manifest.json"


class SavedArray(Struct, frozen=True):
    """The form of one array."""

    rows: int
    row_shape: tuple[int, ...]
    dtype: str


class SavedProgress(Struct, frozen=True):
    """How far training is, and what it must agree with to go on."""

    algorithm: str
    iteration: int  # that are done
    blocks: int
    batch: int  # blocks of an iteration
    seed: int
    objective: float | None = None  # at the end of the last epoch
    arrays: dict[str, SavedArray] = {}
    format: int = _FORMAT


class SavedModel:
    """A checkpoint that is read."""

    def __init__(self, folder: Path, progress: SavedProgress) -> None:
        self.folder, self.progress = folder, progress
        self._arrays: dict[str, Array] = {}
        self._files: dict[Path, set[int]] | None = None  # with the states of blocks
        self._reading = threading.Lock()  # Other hosts are answered by threads of their own.

    def layouts(self) -> dict[str, ArrayLayout]:
        """The form of its arrays."""
        return {
            name: ArrayLayout(of.rows, of.row_shape, np.dtype(of.dtype)) for name, of in self.progress.arrays.items()
        }

    def rows(self, name: str, first: int, behind: int) -> Array:
        """Rows of an array, read now."""
        if name not in self._arrays:
            wanted = self.layouts().get(name)
            try:
                found = np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise TrainingError(f"checkpoint '{self.folder / name}.npy' cannot be read: {error}") from error
            if wanted is None or ArrayLayout.of(found) != wanted:
                raise TrainingError(f"checkpoint '{self.folder / name}.npy' is not what {_MANIFEST} says")
            self._arrays[name] = found
        return np.ascontiguousarray(self._arrays[name][first:behind])

    def states_of(self, blocks: Sequence[int]) -> bytes:
        """The states of some blocks, as `packed_states` writes them, read now."""
        with self._reading:
            if self._files is None:
                self._files = self._blocks_by_file()
        wanted, found = set(blocks), dict[str, Array]()
        for path, there in self._files.items():
            if wanted & there:
                found |= _unpacked(path, str(path), wanted)
        return _packed(found)

    def _blocks_by_file(self) -> dict[Path, set[int]]:
        """Which file has the states of which blocks."""
        files = {}
        for path in sorted(self.folder.glob("states-*.npz")):
            with _opened(path, str(path)) as file:
                files[path] = {int(name.split("/", 1)[0]) for name in file.files}
        return files


class CheckpointFolder:
    """Where a job's checkpoints are; the last one stays."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def newest(self) -> SavedModel | None:
        """The checkpoint with the most iterations; None if there is none."""
        found = [path for path in self.folder.glob(f"{_PREFIX}*") if path.suffix != _PART and path.is_dir()]
        if not found:
            return None
        newest = max(found, key=lambda path: (_iteration_of(path), path.name))
        try:
            progress = msgspec.json.decode((newest / _MANIFEST).read_bytes(), type=SavedProgress)
        except (OSError, msgspec.MsgspecError) as error:
            raise TrainingError(f"checkpoint '{newest}' cannot be read: {error}") from error
        if progress.format != _FORMAT:
            raise TrainingError(f"checkpoint '{newest}' has format {progress.format}; this version reads {_FORMAT}")
        return SavedModel(newest, progress)

    def save(
        self,
        progress: SavedProgress,
        layouts: Mapping[str, ArrayLayout],
        shards: Callable[[str], Iterable[Array]],
        states: Iterable[bytes],
    ) -> Path:
        """Write a checkpoint, and remove older ones when it is there; `shards` gives the rows of an array, in order."""
        target = self.folder / f"{_PREFIX}{progress.iteration:09d}"
        part = target.with_name(target.name + _PART)
        arrays = {name: SavedArray(of.rows, of.row_shape, of.dtype.str) for name, of in layouts.items()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            for name, layout in layouts.items():
                with open(part / f"{name}.npy", "wb") as file:
                    _write_array(file, layout, shards(name))
            for number, content in enumerate(states):
                _write_bytes(part / f"states-{number}.npz", content)
            _write_bytes(part / _MANIFEST, msgspec.json.encode(msgspec.structs.replace(progress, arrays=arrays)))
            _sync_folder(part)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(part, target)
            _sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise TrainingError(f"checkpoint '{target}' cannot be written: {error.strerror or error}") from error
        for path in self.folder.glob(f"{_PREFIX}*"):
            if path != target:
                shutil.rmtree(path, ignore_errors=True)
        return target


def packed_states(states: Mapping[int, Mapping[str, Array]]) -> bytes:
    """The states of blocks, by number, as one file."""
    named = {f"{number}/{key}": array for number, state in states.items() for key, array in state.items()}
    for name, array in named.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
            raise TrainingError(f"block {name.split('/')[0]}: state '{name.split('/', 1)[1]}' is no array of numbers")
    return _packed(named)


def unpacked_states(content: bytes) -> dict[int, dict[str, Array]]:
    """What `packed_states` wrote."""
    states: dict[int, dict[str, Array]] = {}
    for name, array in _unpacked(io.BytesIO(content), "the states of blocks").items():
        number, _, key = name.partition("/")
        states.setdefault(int(number), {})[key] = array
    return states


def _iteration_of(path: Path) -> int:
    text = path.name.removeprefix(_PREFIX)
    return int(text) if text.isdecimal() else -1


def _packed(states: Mapping[str, Array]) -> bytes:
    content = io.BytesIO()
    named: dict[str, Any] = dict(states)
    np.savez(content, **named)
    return content.getvalue()


def _opened(source: Path | io.BytesIO, what: str) -> NpzFile:
    try:
        found = np.load(source, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise TrainingError(f"{what} cannot be read: {error}") from error
    if not isinstance(found, NpzFile):
        raise TrainingError(f"{what} cannot be read: it is no .npz file")
    return found


def _unpacked(source: Path | io.BytesIO, what: str, blocks: set[int] | None = None) -> dict[str, Array]:
    """The states in a file, or those of some blocks."""
    with _opened(source, what) as file:
        try:
            return {name: file[name] for name in file.files if blocks is None or int(name.split("/", 1)[0]) in blocks}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise TrainingError(f"{what} cannot be read: {error}") from error


def _write_array(file: BinaryIO, layout: ArrayLayout, shards: Iterable[Array]) -> None:
    # Not through a memory map: on a full disk that would kill the process instead of raising an error.
    header = {
        "descr": np.lib.format.dtype_to_descr(layout.dtype), "fortran_order": False,
        "shape": (layout.rows, *layout.row_shape),
    }  # fmt: skip
    np.lib.format.write_array_header_1_0(file, header)
    for rows in shards:
        file.write(content_of(rows))
    file.flush()
    os.fsync(file.fileno())


def _write_bytes(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
