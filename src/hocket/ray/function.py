"""`python -m hocket.ray.function FILE`: calls the function that was sent along in a file, in a job's process."""

from __future__ import annotations

import pickle
import sys


def main() -> int:
    """Call it; what it returns is printed, and what it raises ends the job."""
    with open(sys.argv[1], "rb") as file:
        function, arguments = pickle.load(file)
    sys.path.insert(0, "")  # modules of the working directory
    result = function(*arguments)
    if result is not None:
        print(result, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
