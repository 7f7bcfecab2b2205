"""Kernels: machine code that is kept on disk and runs without numba, and what is refused."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from hocket.runtimes.paramserver import kernel as kernel_module
from hocket.runtimes.paramserver.kernel import Kernel
from hocket.runtimes.paramserver.kernel_compiler import fingerprint
from hocket.runtimes.paramserver.training import train

FACTOR = 3
KEPT = 5.0


def scaled_sum(values: Any, weights: Any, by: Any) -> float:
    total = 0.0
    for n in range(len(values)):
        total += values[n] * weights[n, 0] * by
    return FACTOR * total


def copied(function: Any, folder: Path, **changed: object) -> Kernel:
    """The kernel, as if its module were in the folder."""
    (folder / "module.py").touch()
    code = function.__code__.replace(co_filename=str(folder / "module.py"))
    return Kernel(FunctionType(code, {**function.__globals__, **changed}, function.__name__))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").iterdir())


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of kernels as they are compiled."""
    found: list[str] = []

    def compile_kernel(function: Any, types: Any) -> Any:
        found.append(function.__name__)
        return original(function, types)

    original = kernel_module.compile_kernel
    monkeypatch.setattr(kernel_module, "compile_kernel", compile_kernel)
    return found


VALUES, WEIGHTS = np.arange(5.0), np.arange(10, dtype=np.float32).reshape(5, 2)
EXPECTED = 3 * 2.0 * float((VALUES * WEIGHTS[:, 0]).sum())


def test_a_kernel_is_compiled_once_for_types_of_arguments(tmp_path: Path, compilations: list[str]) -> None:
    first = copied(scaled_sum, tmp_path)
    assert first(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert first(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert compilations == ["scaled_sum"]
    assert copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert compilations == ["scaled_sum"]
    for arguments in ((VALUES, WEIGHTS, 2), (VALUES, WEIGHTS.astype(np.float64), 2), (VALUES.astype(int), WEIGHTS, 2)):
        assert first(*arguments) == EXPECTED
    assert len(compilations) == len(files(tmp_path)) == 4


def test_what_is_kept_is_not_used_for_another_version_of_the_kernel(tmp_path: Path, compilations: list[str]) -> None:
    copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0)
    assert copied(scaled_sum, tmp_path, FACTOR=6)(VALUES, WEIGHTS, 2.0) == 2 * EXPECTED
    constants = tuple(1.0 if isinstance(constant, float) else constant for constant in scaled_sum.__code__.co_consts)
    changed = FunctionType(scaled_sum.__code__.replace(co_consts=constants), scaled_sum.__globals__, "scaled_sum")
    assert copied(changed, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED + 3
    assert len(compilations) == 3
    assert len(files(tmp_path)) == 1, "an older version stays on disk for ever"


@pytest.mark.parametrize(("name", "expected"), [("doubled", 34.0), ("TABLE", 25.0), ("helpers", 27.0)])
def test_a_kernel_is_compiled_anew_once_what_it_uses_has_changed(
    tmp_path: Path, compilations: list[str], name: str, expected: float
) -> None:
    from tests.unit.runtimes.paramserver.numba_functions import OTHERS, of_globals

    for _ in range(2):
        assert copied(of_globals, tmp_path)(10.0) == 24.0
    assert len(compilations) == 1
    for _ in range(2):
        assert copied(of_globals, tmp_path, **{name: OTHERS[name]})(10.0) == expected
    assert len(compilations) == 2


def with_a_function_within(values: Any) -> Any:
    def scaled(value: Any) -> Any:
        return FACTOR * value

    return [scaled(value) for value in values]


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    from tests.unit.runtimes.paramserver.numba_functions import of_globals

    program = (
        "from tests.unit.runtimes.paramserver.test_kernel import with_a_function_within, fingerprint;"
        "from tests.unit.runtimes.paramserver.numba_functions import of_globals;"
        "print(fingerprint(of_globals).hex(), fingerprint(with_a_function_within).hex())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [fingerprint(of_globals).hex(), fingerprint(with_a_function_within).hex()]
    changed = FunctionType(with_a_function_within.__code__, {**with_a_function_within.__globals__, "FACTOR": 4})
    assert fingerprint(changed) != fingerprint(with_a_function_within)


TYPED = """
import numpy as np
from hocket.paramserver import Kernel

@Kernel
def first(values):
    return values[0]

print(first(np.ones(2)), first.__name__)
"""


def test_kernels_typed_in_are_kept_in_the_users_own_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "home")}
    (tmp_path / "work").mkdir()
    command, folder = [sys.executable, "-"], tmp_path / "work"
    done = subprocess.run(command, input=TYPED, capture_output=True, text=True, check=True, cwd=folder, env=environment)
    assert done.stdout.split() == ["1.0", "first"]
    assert not list(folder.iterdir())
    assert len(list((tmp_path / "home/hocket/kernels").iterdir())) == 1


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c[:100] + bytes([c[100] ^ 1]) + c[101:], lambda _: b""])
def test_a_damaged_file_is_not_used(tmp_path: Path, compilations: list[str], change: Any) -> None:
    copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0)
    (file,) = files(tmp_path)
    file.write_bytes(change(file.read_bytes()))
    assert copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert len(compilations) == 2
    assert copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert len(compilations) == 2


def test_kernels_run_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__pycache__").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED
    assert len(list((tmp_path / "home/hocket/kernels").iterdir())) == 1, "the user's own folder is the second choice"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "__pycache__"))
    assert copied(scaled_sum, tmp_path)(VALUES, WEIGHTS, 2.0) == EXPECTED


def test_empty_arrays_and_those_that_must_not_be_changed_are_taken(tmp_path: Path) -> None:
    kernel = copied(scaled_sum, tmp_path)
    assert kernel(VALUES[:0], WEIGHTS, 2.0) == 0.0
    text = np.frombuffer(VALUES.tobytes())
    assert not text.flags.writeable
    assert kernel(text, WEIGHTS, 2.0) == EXPECTED


def test_an_array_with_gaps_is_refused(tmp_path: Path) -> None:
    kernel = copied(scaled_sum, tmp_path)
    with pytest.raises(ValueError, match="kernel scaled_sum: argument 1 is an array with gaps"):
        kernel(VALUES, WEIGHTS.T, 2.0)


def all_kinds(small: Any, large: Any, on: Any, off: Any, changed: Any) -> None:
    changed[0, 1, 0] = small
    changed[1, 0, 1] = large
    changed[1, 1, 1] = len(changed) if on and not off else -1


def test_numbers_of_all_kinds_arrive_and_arrays_are_changed_in_place(tmp_path: Path) -> None:
    changed = np.zeros((2, 2, 2))
    assert copied(all_kinds, tmp_path)(np.float32(0.5), 2**40 + 1, True, False, changed) is None
    assert changed.ravel().tolist() == [0, 0, 0.5, 0, 0, 2.0**40 + 1, 0, 2]


def allocating(values: Any) -> Any:
    return np.zeros(len(values)).sum()


def test_a_kernel_cannot_create_arrays(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="kernel allocating cannot be compiled"):
        copied(allocating, tmp_path)(VALUES)


def test_a_kernel_cannot_use_variables_of_the_function_around_it() -> None:
    # What they are would not be seen by what is kept on disk.
    by = 2.0
    with pytest.raises(TypeError, match="uses variables of the function around it"):
        Kernel(lambda values: values[0] * by)(VALUES)


def of_numba(value: Any) -> Any:
    return math.gamma(value)


def test_a_kernel_may_need_a_function_of_numba(tmp_path: Path) -> None:
    assert copied(of_numba, tmp_path)(5.0) == pytest.approx(24.0)
    program = (
        "import sys; from tests.unit.runtimes.paramserver.test_kernel import copied, of_numba, Path;"
        "print(copied(of_numba, Path(sys.argv[1]))(5.0))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(24.0)


def slow(count: Any, found: Any) -> None:
    for n in range(count):
        found[0] = (found[0] * 6364136223846793005 + n) ^ (found[0] >> 7)


def test_other_threads_run_meanwhile(tmp_path: Path) -> None:
    kernel, ended, ticks = copied(slow, tmp_path), Event(), 0
    found = np.ones(1, np.int64)
    kernel(1, found)

    def run() -> None:
        kernel(50_000_000, found)
        ended.set()

    thread = Thread(target=run)
    thread.start()
    while not ended.is_set():
        ticks += 1
    thread.join()
    assert ticks > 1000


TRAIN = """
import json, sys
from pathlib import Path
from importlib import import_module
from hocket.runtimes.paramserver.training import train
application, data = sys.argv[1:]
algorithm, blocks = import_module(f"hocket.runtimes.paramserver.applications.{application}").load(Path(data), 2, 2)
found = train(algorithm, blocks, epochs=2)
print(json.dumps([found.objective, sorted({"numba", "scipy"} & set(sys.modules))]))
"""


@pytest.mark.parametrize("application", ["lasso", "lda", "mlr", "nmf"])
def test_applications_train_without_loading_numba_once_kernels_are_kept(tmp_path: Path, application: str) -> None:
    from hocket.runtimes.paramserver.generators import generate

    data = tmp_path / "data"
    generate(application, data, scale=1e-4)
    algorithm, blocks = import_module(f"hocket.runtimes.paramserver.applications.{application}").load(data, 2, 2)
    here = train(algorithm, blocks, epochs=2)  # which keeps them
    done = subprocess.run([sys.executable, "-c", TRAIN, application, data], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [here.objective, []]
