"""A trained model as a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from hocket.runtimes.paramserver.algorithm import Array, TrainingError


def write_model(path: Path, model: Mapping[str, Array]) -> None:
    """Write all arrays to an `.npz` file, which is there whole or not at all. Raises TrainingError."""
    part = path.with_name(f"{path.name}.part")
    try:
        with open(part, "wb") as file:
            np.savez(file, **dict(model))  # type: ignore[arg-type]  # NumPy's stubs confuse names with an option.
        part.replace(path)
    except OSError as error:
        raise TrainingError(f"model '{path}' cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
