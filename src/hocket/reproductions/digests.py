"""What a result rests on, as digests: the files that were read, and the sources that were run."""

from __future__ import annotations

from functools import cache
from hashlib import file_digest, sha256
from pathlib import Path


def digest_of_file(path: str | Path) -> str:
    """Of a file's content."""
    with Path(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def digest_of_sources(folder: Path) -> str:
    """Of all Python sources in a folder, with their names."""
    digest = sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()} {digest_of_file(path)}\n".encode())
    return digest.hexdigest()


@cache  # What this process runs does not change with the files.
def our_sources() -> str:
    """Of the package as it is installed here."""
    return digest_of_sources(Path(__file__).parents[1])
