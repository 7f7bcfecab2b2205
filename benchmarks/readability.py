"""How large the code is: `python -m benchmarks.readability [--against FOLDER] [--longest] [--json]`.

By package: files, lines, classes, functions and the longest function; in all: public class names that occur in several
files, and lines with words for people, which should not be used for things. With `--against`, another tree of this
project is shown beside this one, and each number is followed by its ratio to the other tree's.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.machine import ROOT, table

PEOPLE = re.compile(r"\b(who|whom|whoever|somebody|nobody|anybody|everybody|he|him|his)\b", re.IGNORECASE)
LONGEST, LONG = 10, 40  # how many functions are listed; from how many lines on a function is long


class Function(Struct, frozen=True):
    """A function or method."""

    lines: int
    name: str
    file: str


class Package(Struct):
    """Counts of one package, or of several joined_records."""

    files: int = 0
    lines: int = 0
    classes: int = 0
    functions: int = 0
    long_functions: int = 0
    longest: list[Function] = []  # the longest functions, longest first

    def plus(self, other: Package) -> Package:
        """Both joined_records."""
        longest = sorted((*self.longest, *other.longest), key=lambda f: (-f.lines, f.file, f.name))[:LONGEST]
        return Package(
            self.files + other.files, self.lines + other.lines, self.classes + other.classes,
            self.functions + other.functions, self.long_functions + other.long_functions, longest,
        )  # fmt: skip


class Tree(Struct, frozen=True):
    """One version of the project."""

    packages: dict[str, Package]  # of the source
    hocket: Package  # the packages that the wheel of hocket has
    total: Package
    tests: Package
    benchmarks: Package
    shared_class_names: dict[str, list[str]]  # public class → the files that define one of this name
    people: int  # lines of the source that use a word for people


def measure(root: Path) -> Tree:
    """Read all Python files of a tree."""
    packages: dict[str, Package] = {}
    classes: dict[str, list[str]] = {}
    people = 0
    for source in (root / "src", root / "reproductions" / "src"):
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source).parts
            name = parts[1] if parts[0] == "hocket" and len(parts) > 2 else parts[0]
            packages[name] = packages.get(name, Package()).plus(_counted(path, root))
            text = path.read_text(encoding="utf-8")
            people += sum(bool(PEOPLE.search(line)) for line in text.splitlines())
            for node in ast.parse(text).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    classes.setdefault(node.name, []).append(path.relative_to(source).as_posix())
    return Tree(
        dict(sorted(packages.items())),
        _together(package for name, package in packages.items() if name != "hocket_reproductions"),
        _together(packages.values()),
        _together(_counted(path, root) for path in (root / "tests").rglob("*.py")),
        _together(_counted(path, root) for path in (root / "benchmarks").rglob("*.py")),
        {name: files for name, files in sorted(classes.items()) if len(files) > 1},
        people,
    )


def _counted(path: Path, root: Path) -> Package:
    text = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(text)))
    functions = [
        Function((n.end_lineno or n.lineno) - n.lineno + 1, n.name, path.relative_to(root).as_posix())
        for n in nodes
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    classes = sum(isinstance(n, ast.ClassDef) for n in nodes)
    long = sum(f.lines > LONG for f in functions)
    return Package().plus(Package(1, len(text.splitlines()), classes, len(functions), long, functions))


def _together(packages: object) -> Package:
    total = Package()
    for package in packages:  # type: ignore[attr-defined]
        total = total.plus(package)
    return total


def text(here: Tree, other: Tree | None) -> str:
    """Tables of both trees."""
    names = dict.fromkeys((*here.packages, *(other.packages if other is not None else ())))
    rows = [(name, here.packages.get(name), other and other.packages.get(name)) for name in names]
    rows += [
        ("wheel of hocket", here.hocket, other and other.hocket),
        ("source in all", here.total, other and other.total),
        ("tests", here.tests, other and other.tests),
        ("benchmarks", here.benchmarks, other and other.benchmarks),
    ]
    titles = ("package", "files", "lines", "classes", "functions", "longest function")
    lines = table(titles, [(name, *_cells(a or Package(), b, other is not None)) for name, a, b in rows])
    for what, of in (
        ("public class names that several files define", lambda tree: len(tree.shared_class_names)),
        (f"functions of more than {LONG} lines", lambda tree: tree.total.long_functions),
        ("lines of the source with words for people", lambda tree: tree.people),
    ):
        lines += ["", f"{what}: {of(here)}" + ("" if other is None else f" (other tree: {of(other)})")]
    lines += ["", "longest functions", *_longest(here.total)]
    if other is not None:
        lines += ["", "longest functions of the other tree", *_longest(other.total)]
    return "\n".join(lines)


def _cells(package: Package, other: Package | None, is_compared: bool) -> list[str]:
    cells = []
    for of in ("files", "lines", "classes", "functions", "longest"):
        now, then = (
            value[0].lines if isinstance(value, list) and value else value or 0
            for value in (getattr(package, of), getattr(other or Package(), of))
        )
        ratio = f"×{now / then:.2f}" if then else "new" if now else ""
        cells.append(f"{now:,} of {then:,} {ratio:>5}" if is_compared else f"{now:,}")
    return cells


def _longest(package: Package) -> list[str]:
    return table(("function", "lines", "file"), [(f.name, str(f.lines), f.file) for f in package.longest])


def main(arguments: list[str]) -> None:
    """Measure one tree or two, and print tables or one object."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readability", description="How large the code is.")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another tree of this project")
    parser.add_argument("--longest", action="store_true", help=f"also the {LONGEST} longest functions of each package")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if chosen.against is not None and not (chosen.against / "src" / "hocket").is_dir():
        parser.error(f"--against '{chosen.against}' must be a tree of this project, with src/hocket in it")
    here, other = measure(ROOT), measure(chosen.against) if chosen.against is not None else None
    if chosen.json:
        print(msgspec.json.encode({"here": here, "other": other}).decode())
        return
    print(text(here, other))
    if chosen.longest:
        for name, package in here.packages.items():
            print(f"\n{name}", *_longest(package), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
