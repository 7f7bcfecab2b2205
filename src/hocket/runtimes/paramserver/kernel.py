"""Functions over arrays that run as machine code, at the same time in several threads.

numba compiles a kernel when it is first called with arguments of some types, once on a machine. Processes after that
load the machine code without numba, which takes longer to import than many jobs need to read their input.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, byref, c_char
from functools import cache, update_wrapper
from threading import Lock
from typing import Any, cast

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array
from hocket.runtimes.paramserver.kernel_cache import KernelCache
from hocket.runtimes.paramserver.kernel_compiler import ArgumentType, MachineCode, compile_kernel, fingerprint

_LOADING = Lock()  # LLVM's, of this process


class Kernel:
    """Such a function; a decorator.

    Its arguments are numbers and arrays without gaps (C-contiguous), and it returns a number or nothing. It changes
    arrays in place and creates none: what it needs room for is an argument. Its arrays do not overlap.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.function = function
        self._by_types: dict[tuple[object, ...], Callable[..., Any]] = {}

    def __call__(self, *arguments: Array | np.generic | float) -> Any:
        """Run it, without the GIL."""
        types = tuple([(a.dtype, a.ndim) if isinstance(a, np.ndarray) else type(a) for a in arguments])
        run = self._by_types.get(types)
        if run is None:
            with _LOADING:
                run = self._by_types.setdefault(types, self._loaded(arguments))
        return run(arguments)

    def _loaded(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        types = tuple(ArgumentType(np.asarray(a).dtype.str, np.ndim(a)) for a in arguments)
        name = self.function.__name__
        kept = KernelCache(self.function.__code__.co_filename, name, fingerprint(self.function))
        key = repr((_machine(), self.function.__qualname__, types))
        code = kept.load(key)
        if code is None:
            code = compile_kernel(self.function, types)
            kept.store(key, code)
        return _callable(code, types, name)


@cache
def _machine() -> tuple[str, ...]:
    """What machine code is for."""
    from llvmlite import __version__, binding

    features = binding.get_host_cpu_features().flatten()
    return __version__, binding.get_process_triple(), binding.get_host_cpu_name(), features


def _callable(code: MachineCode, types: tuple[ArgumentType, ...], name: str) -> Callable[[tuple[Any, ...]], Any]:
    """What takes the tuple of arguments to the machine code.

    That is called as numba calls functions, with: where the result goes, where an error goes, and all arguments; of an
    array its two owners (there are none), length, bytes of an element, data, shape, and bytes from one to the next.
    """
    size, pointer = ctypes.c_ssize_t, ctypes.c_void_p
    passed: list[Any] = [pointer, pointer]
    for of in types:
        if of.dimensions:
            passed += [pointer, pointer, size, size, pointer, *[size] * (2 * of.dimensions)]
        else:
            passed.append(np.ctypeslib.as_ctypes_type(np.dtype(of.dtype)))
    engine, address = _linked(code, name)
    run = ctypes.CFUNCTYPE(ctypes.c_int, *passed)(address)
    result_type = np.ctypeslib.as_ctypes_type(np.dtype(code.result)) if code.result else pointer

    def call(arguments: tuple[Any, ...]) -> Any:
        words: list[Any] = []
        for place, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                address = _address(argument, name, place)
                words += (None, None, argument.size, argument.itemsize, address, *argument.shape, *argument.strides)
            else:
                words.append(argument)
        result, error = result_type(), pointer()
        if run(byref(result), byref(error), *words):
            raise RuntimeError(f"kernel {name} raised an error, which kernels cannot")
        return result.value if code.result else None

    call.engine = engine  # type: ignore[attr-defined] # It owns the memory that the machine code is in.
    return call


def _address(array: Array, kernel: str, place: int) -> int:
    """Where the numbers of an array are."""
    try:
        return addressof(c_char.from_buffer(cast(Any, array)))  # in a third of the time of what is below
    except (TypeError, ValueError):  # It has gaps, is empty, or must not be changed.
        if not array.flags.c_contiguous:
            raise ValueError(f"kernel {kernel}: argument {place} is an array with gaps (not C-contiguous)") from None
        return array.ctypes.data


def _linked(code: MachineCode, name: str) -> tuple[Any, int]:
    """LLVM's engine with the code in it, and the function's address."""
    from llvmlite import binding

    for needed in code.needs:
        found = binding.address_of_symbol(needed) or _address_in_c_library(needed)
        if found is None:
            _load_numba()
            found = binding.address_of_symbol(needed)
        if found is None:  # LLVM would end the process.
            raise RuntimeError(f"kernel {name} needs {needed}(), which is not there")
        binding.add_symbol(needed, found)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code.object_file))
    engine.finalize_object()
    return engine, engine.get_function_address(code.name)


def _address_in_c_library(name: str) -> int | None:
    for library in (None, "libm.so.6"):  # NumPy has loaded it.
        try:
            return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value
        except (AttributeError, OSError):
            continue
    return None


def _load_numba() -> None:
    """Have it add its own functions to LLVM's: few kernels call one."""
    from numba.core.registry import cpu_target

    _ = cpu_target.target_context
