"""Checkpoints: one version of the whole model and of all blocks' states, in a folder that is there whole or not at all.

Host 0 begins and ends it. Hosts that see its folder write their own part of it there, and read theirs from it; for the
others host 0 does so: so hosts need no shared disk, and training can go on with another number of them.
"""

from __future__ import annotations

import io
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
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
# NumPy has Python parse what stands before an array, which may fail before 3.13 if two threads do so at once: with a
# SystemError, "AST constructor recursion depth mismatch" (python/cpython#106905).
_LOADING = threading.Lock()
_MANIFEST = "manifest.json"
_CLAIM = "being-written"  # in a checkpoint that is begun: its id


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
    id: str = ""  # by which hosts know that they see the same one; empty in older ones


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
                with _LOADING:
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

    def newest_with_id(self, id_: str) -> SavedModel | None:
        """The newest one if it is the one with this id."""
        try:
            newest = self.newest()
        except TrainingError:  # It is another host's folder, or another job's.
            return None
        return newest if newest is not None and id_ and newest.progress.id == id_ else None

    def begin(self, progress: SavedProgress, layouts: Mapping[str, ArrayLayout]) -> CheckpointPart:
        """Begin a checkpoint: on host 0, before any host writes."""
        part = CheckpointPart(self.folder, progress.iteration, progress.id, layouts)
        part.create()
        return part

    def begun(self, iteration: int, id_: str, layouts: Mapping[str, ArrayLayout]) -> CheckpointPart | None:
        """The checkpoint that host 0 has begun; None if it is not seen here."""
        part = CheckpointPart(self.folder, iteration, id_, layouts)
        return part if part.is_seen() else None


class CheckpointPart:
    """A checkpoint that is being written. Errors of the disk are TrainingErrors, and leave nothing of it."""

    def __init__(self, folder: Path, iteration: int, id_: str, layouts: Mapping[str, ArrayLayout]) -> None:
        self._folder, self._id, self._layouts = folder, id_, layouts
        self._target = folder / f"{_PREFIX}{iteration:09d}"
        self._part = self._target.with_name(self._target.name + _PART)

    def is_seen(self) -> bool:
        """Is it this one that is in the folder?"""
        try:
            return bool(self._id) and (self._part / _CLAIM).read_text(encoding="ascii") == self._id
        except (OSError, UnicodeDecodeError):
            return False

    def create(self) -> None:
        """Files as long as they will be, without content."""
        with self._written():
            self._folder.mkdir(parents=True, exist_ok=True)
            for left in self._folder.glob(f"{_PREFIX}*{_PART}"):  # by a process that was killed; it takes up room
                shutil.rmtree(left, ignore_errors=True)
            self._part.mkdir()
            for name, layout in self._layouts.items():
                header = _array_header(layout)
                with open(self._part / f"{name}.npy", "wb") as file:
                    file.write(header)
                    file.truncate(len(header) + layout.rows * layout.empty(1).nbytes)
            _write_bytes(self._part / _CLAIM, self._id.encode())

    def write(self, host: int, rows: Iterable[tuple[str, int, Array]], states: Iterable[bytes]) -> None:
        """A host's rows, by array and the first of them, and the states of its blocks, some at a time."""
        with self._written():
            for name, first, values in rows:
                layout = self._layouts[name]
                # Not through a memory map: on a full disk that would kill the process instead of raising an error.
                with open(self._part / f"{name}.npy", "r+b") as file:
                    file.seek(len(_array_header(layout)) + first * layout.empty(1).nbytes)
                    file.write(content_of(values))
                    file.flush()
                    os.fsync(file.fileno())
            for number, content in enumerate(states):
                _write_bytes(self._part / f"states-{host}-{number}.npz", content)

    def finish(self, progress: SavedProgress) -> Path:
        """All hosts have written: it is a checkpoint from now on, and older ones are removed."""
        arrays = {name: SavedArray(of.rows, of.row_shape, of.dtype.str) for name, of in self._layouts.items()}
        with self._written():
            _write_bytes(self._part / _MANIFEST, msgspec.json.encode(msgspec.structs.replace(progress, arrays=arrays)))
            (self._part / _CLAIM).unlink()
            _sync_folder(self._part)
            shutil.rmtree(self._target, ignore_errors=True)
            os.rename(self._part, self._target)
            _sync_folder(self._folder)
        for path in self._folder.glob(f"{_PREFIX}*"):
            if path != self._target:
                shutil.rmtree(path, ignore_errors=True)
        return self._target

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            shutil.rmtree(self._part, ignore_errors=True)
            raise TrainingError(f"checkpoint '{self._target}' cannot be written: {error.strerror or error}") from error


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
        with _LOADING:
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
            wanted = [name for name in file.files if blocks is None or int(name.split("/", 1)[0]) in blocks]
            with _LOADING:
                return {name: file[name] for name in wanted}
        except (OSError, ValueError, EOFError, BadZipFile) as error:
            raise TrainingError(f"{what} cannot be read: {error}") from error


def _array_header(layout: ArrayLayout) -> bytes:
    header = {
        "descr": np.lib.format.dtype_to_descr(layout.dtype), "fortran_order": False,
        "shape": (layout.rows, *layout.row_shape),
    }  # fmt: skip
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, header)
    return written.getvalue()


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
