"""`python -m benchmarks.query MEASUREMENT …`: each module here with a `main` is one; without a name they are listed."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import benchmarks.query as package


def measurements() -> dict[str, str]:
    """Their names, each with the first line of its docstring."""
    names = sorted(m.name for m in iter_modules(package.__path__) if not m.name.startswith("_"))
    modules = {name: import_module(f"benchmarks.query.{name}") for name in names}
    return {name: (m.__doc__ or "").split("\n", 1)[0] for name, m in modules.items() if hasattr(m, "main")}


def main(arguments: list[str]) -> None:
    """Run the one that is named, or list all."""
    known = measurements()
    if not arguments or arguments[0] in ("-h", "--help"):
        print("python -m benchmarks.query MEASUREMENT [--help | OPTION …]\n")
        print("\n".join(f"  {name:12} {said}" for name, said in known.items()))
        return
    name = arguments[0]
    if name not in known:
        sys.exit(f"there is no measurement '{name}'; there are: {', '.join(known)}")
    import_module(f"benchmarks.query.{name}").main(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
