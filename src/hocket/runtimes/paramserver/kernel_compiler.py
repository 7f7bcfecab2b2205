"""Compiles a function over arrays into machine code that needs nothing else: no Python, and no numba when it runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

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
    import numpy as np
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
    code: CodeType = function.__code__
    if function.__closure__:
        raise TypeError(f"kernel {function.__qualname__} uses variables of the function around it")
    known = {name: function.__globals__.get(name) for name in code.co_names}
    numbers = {name: value for name, value in known.items() if isinstance(value, bool | int | float)}
    parts = (code.co_code, code.co_consts, code.co_names, code.co_varnames, numbers, _FORMAT)
    return hashlib.sha256(repr(parts).encode()).digest()
