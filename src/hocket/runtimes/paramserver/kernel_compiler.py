"""Compiles a function over arrays into machine code that needs nothing else: no Python, and no numba when it runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from msgspec import Struct

_FORMAT = 1  # Count up where something below changes what machine code there is.
_FAST_MATH = ("reassoc", "contract", "nsz", "arcp")  # Sums may be reordered, NaNs are kept.
_DECLARED = re.compile(r'^declare .*@"?([\w.$]+)"?\(', re.MULTILINE)


class ArgumentType(Struct, frozen=True):
    """A number, or an array without gaps."""

    dtype: str
    dimensions: int = 0  # 0: a number


class MachineCode(Struct, frozen=True):
    """What a kernel was compiled to, for one machine and arguments of some types."""

    object_file: bytes
    name: str  # of the function in it
    result: str  # the dtype of the number it returns; empty if there is none
    needs: tuple[str, ...]  # functions of the C library, as `exp`


def compile_kernel(function: Callable[..., Any], arguments: tuple[ArgumentType, ...]) -> MachineCode:
    """Compile for this machine. A kernel cannot create arrays or raise errors, which would need Python."""
    from numba import from_dtype, types
    from numba.core.compiler import Flags, compile_extra
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.cpu_options import FastMathOptions
    from numba.core.errors import TypingError
    from numba.core.registry import cpu_target

    def type_of(argument: ArgumentType) -> Any:
        plain = from_dtype(np.dtype(argument.dtype))
        return types.Array(plain, argument.dimensions, "C") if argument.dimensions else plain

    flags: Any = Flags()
    flags.error_model = "numpy"
    flags.noalias = True  # `njit` has no such option.
    flags.fastmath = FastMathOptions(set(_FAST_MATH))
    # Without its runtime numba refuses what allocates; without wrappers nothing of Python is called.
    flags.nrt, flags.no_cpython_wrapper, flags.no_cfunc_wrapper = False, True, True
    typing, target = cpu_target.typing_context, cpu_target.target_context
    with global_compiler_lock:
        typing.refresh()
        target.refresh()
        try:
            given = tuple(type_of(argument) for argument in arguments)
            compiled = compile_extra(typing, target, function, given, None, flags, {})
        except TypingError as error:
            raise TypeError(f"kernel {function.__qualname__} cannot be compiled: {error}") from error
    _, _, (object_file, _) = compiled.library.serialize_using_object_code()
    needs = {name for name in _DECLARED.findall(compiled.library.get_llvm_str()) if not name.startswith("llvm.")}
    result = compiled.signature.return_type
    return MachineCode(
        object_file,
        compiled.fndesc.llvm_func_name,
        "" if result == types.none else np.dtype(result.name).str,
        tuple(sorted(needs)),
    )


def fingerprint(function: Callable[..., Any]) -> bytes:
    """What the machine code depends on, but for the machine, the types of arguments, and the version of LLVM."""
    if function.__closure__:
        raise TypeError(f"kernel {function.__qualname__} uses variables of the function around it")
    return hashlib.sha256(repr((_FORMAT, _of_function(function, frozenset()))).encode()).digest()


def _of_function(function: Callable[..., Any], inside: frozenset[object]) -> object:
    """What a function does, from the same in every process. `inside` are functions that are being looked at."""
    code: CodeType = function.__code__
    known, names, inside = function.__globals__, sorted(_names(code)), inside | {function}
    used = {name: _of_global(known[name], names, inside) for name in names if name in known}
    return _of_code(code), used


def _of_code(code: CodeType) -> object:
    constants = [_of_code(one) if isinstance(one, CodeType) else one for one in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames


def _names(code: CodeType) -> set[str]:
    """Names of globals (and of attributes), also in functions within."""
    within = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return set(code.co_names).union(*within)


def _of_global(value: object, names: list[str], inside: frozenset[object]) -> object:
    """What a kernel sees of a global: numba compiles numbers and arrays in, and functions that it compiles itself."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, bool | int | float | complex | str | bytes | tuple | np.generic):
        return repr(value)
    if isinstance(value, ModuleType) and value.__name__ not in ("math", "numpy"):
        found = {name: getattr(value, name) for name in names if hasattr(value, name)}
        return {name: _of_global(one, [], inside) for name, one in found.items()}
    function = getattr(value, "py_func", value)
    if isinstance(function, FunctionType):
        return function.__qualname__ if function in inside else _of_function(function, inside)
    return type(value).__name__
