"""Stands a Python program before its main, and runs it when told to, as Python would have.

Run by the sidecar in the user's own interpreter, by path: `python [options] warm.py HEAR,TELL[,OUTPUT …] script …` or
`… HEAR,TELL -m module …`. It compiles the script, does the imports at its top, tells through one pipe what it did, and
waits at the other for the environment to run in. So: Python 3.8 and the standard library only, nothing of hocket.

A job of several workers is prepared once: when it is told how many there shall be, what stands here becomes them by
forking. The imports are done once for all, and how many workers there will be need not be known before.

What a script does between its imports may change what the later ones do (`os.environ[…] = …`, `sys.path.insert(…)`), so
preparing ends at the first statement that does more than define or name something. What is left is left to the script.

A program that has come to its end is let go at once, for others wait for its devices: see `end`.
"""

from __future__ import annotations

import sys

# Whether the folder of the script is the first on the path.
WITH_FOLDER = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
if __name__ == "__main__" and WITH_FOLDER:
    del sys.path[0]  # It is ours, and our files must not be taken for Python's.

import _io  # noqa: E402
import ast  # noqa: E402
import contextlib  # noqa: E402
import gc  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hocket.agent.sidecar import early_imports as early
else:
    BESIDE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "early_imports.py")
    spec = importlib.util.spec_from_file_location("hocket_early_imports", BESIDE)
    early = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(early)

HERE = __file__
FILES: list[Any] = []  # that the imports opened
ENDS_IN_C = ("h5py", "tables", "netCDF4")  # They finish their files when the C library ends.
MEETING_S = 0.5
GO = b"g"  # what each worker waits for once it is forked


# -- the program as Python would have it ----------------------------------------------------------------------


def stage(program: list[str]) -> tuple[str, bytes, str | None]:
    """Make `sys` and `__main__` as the program expects them; its file, source and package."""
    own = sys.modules["__main__"]
    is_module = program[0] == "-m"
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = [*sys.orig_argv[: len(sys.orig_argv) - len(sys.argv)], *program]
    sys.argv[:] = ["-m", *program[2:]] if is_module else program
    if WITH_FOLDER:
        sys.path.insert(0, os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0])))
    special = {name: value for name, value in vars(own).items() if name.startswith("__")}
    main = types.ModuleType("__main__")
    vars(main).clear()
    vars(main).update(special, __doc__=None)
    if "__annotations__" in special:
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    if is_module:
        for name in ("__file__", "__cached__"):
            vars(main).pop(name, None)
        vars(main)["__loader__"] = importlib.machinery.BuiltinImporter
        return module_source(program[1])
    path = program[0] if sys.version_info < (3, 9) else os.path.abspath(program[0])
    vars(main).update(__file__=path, __loader__=importlib.machinery.SourceFileLoader("__main__", path))
    if not os.path.isfile(path):
        raise early.CannotPrepare(f"'{program[0]}' is not a file")
    with open(path, "rb") as file:
        return path, file.read(), None


def module_source(name: str) -> tuple[str, bytes, str | None]:
    """File, source and package of a module; the packages it is in are imported for that, as `-m` does."""
    import runpy  # noqa: F401 - it will be needed to run it

    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(name + ".__main__")
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        raise early.CannotPrepare(f"module '{name}' has no source")
    with open(spec.origin, "rb") as file:
        return spec.origin, file.read(), spec.parent


def run(program: list[str], path: str, code: Any, stamp: Any) -> None:
    """Run it as `__main__`. Whatever it raises goes on to Python, which then ends as it always does."""
    try:
        if program[0] == "-m":
            import runpy

            runpy._run_module_as_main(program[1])  # type: ignore[attr-defined]
            end(0)
        if stamp_of(path) != stamp:  # It was edited since.
            with open(path, "rb") as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, vars(sys.modules["__main__"]))
        end(0)
    except SystemExit as leaving:
        if leaving.code is None or isinstance(leaving.code, int):
            end(leaving.code or 0)
        raise
    except BaseException:
        gc.unfreeze()
        shown_by = sys.excepthook

        def without_us(kind: Any, error: Any, trace: Any) -> None:
            sys.excepthook = shown_by
            while trace is not None and trace.tb_frame.f_code.co_filename == HERE:
                trace = trace.tb_next
            shown_by(kind, error.with_traceback(trace), trace)

        sys.excepthook = without_us
        raise


def end(code: int) -> None:
    """End as Python does, but for taking every imported module apart, which takes some frameworks a second.

    Threads are waited for, what was registered is called, and files are closed. Nothing else is destroyed: `__del__` of
    what is left is not called, as Python does not promise either. Where a library needs more, Python has its way.
    """
    if any(name in sys.modules for name in ENDS_IN_C):
        gc.unfreeze()
        return
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    files = [*FILES, *open_files()]
    for finish in ("flush", "close"):  # All are flushed first, for one may write into another.
        for file in files:
            if finish == "flush" or file not in (sys.stdin, sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # Python would not stop at that either.
                    getattr(file, finish)()
    os._exit(code & 0xFF)


def open_files() -> list[Any]:
    """All files that Python knows of, but for those that were frozen; first those that may write into others.

    They are told by their type, for some things dislike questions.
    """
    archive = getattr(sys.modules.get("zipfile"), "ZipFile", ())
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), (_io._IOBase, archive))]
    in_python = [thing for thing in found if type(thing).__module__ != "_io"]
    texts = [thing for thing in found if type(thing) is _io.TextIOWrapper]
    return [*in_python, *texts, *(t for t in found if type(t).__module__ == "_io" and type(t) is not _io.TextIOWrapper)]


def stamp_of(path: str) -> tuple[int, int]:
    """What changes when a file is edited."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size


# -- what the imports looked at -------------------------------------------------------------------------------


TOUCHED: set[str] = set()
SWEEP: list[str] = []  # what the last one to go through all variables has still to get


class Watched(type(os.environ)):  # type: ignore[misc]
    """An environment that knows which of its variables were read or written.

    Many packages go through all of them for those with their own prefix, or copy them. That is no interest in any one.
    """

    def __iter__(self) -> Any:
        """All names, and then their values will be wanted in this order."""
        SWEEP[:] = list(super().__iter__())[::-1]
        return iter(SWEEP[::-1])

    def __getitem__(self, key: str) -> str:
        """Get, and remember."""
        if SWEEP[-1:] == [key]:
            del SWEEP[-1:]
        else:
            TOUCHED.add(key)
        return super().__getitem__(key)  # type: ignore[no-any-return]

    def __setitem__(self, key: str, value: str) -> None:
        """Set, and remember."""
        TOUCHED.add(key)
        super().__setitem__(key, value)

    def __delitem__(self, key: str) -> None:
        """Delete, and remember."""
        TOUCHED.add(key)
        super().__delitem__(key)


def gpus_looked_for() -> bool:
    """Whether something asked the driver for GPUs: what it was told then is not what the job will be given.

    The driver is loaded with most frameworks. Once asked, it keeps a thread, although it was told to show no GPU.
    """
    return any(content(f"/proc/self/task/{task}/comm").startswith("cuda") for task in listed("/proc/self/task")) or any(
        target(f"/proc/self/fd/{fd}").startswith("/dev/nvidia") for fd in listed("/proc/self/fd")
    )


def listed(folder: str) -> list[str]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def content(path: str) -> str:
    """What is in a file; nothing if it is gone."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def target(link: str) -> str:
    """Where a link leads; nowhere if it is gone."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


# -- the conversation with the sidecar ------------------------------------------------------------------------


def prepare(program: list[str]) -> tuple[str, Any, Any, dict[str, Any]]:
    """Do all that can be done beforehand; what is to be run, and what to tell."""
    unwatched = type(os.environ)
    os.environ.__class__ = Watched
    line = None
    try:
        path, source, package = stage(program)
        stamp = stamp_of(path)
        code = compile(source, path, "exec", dont_inherit=True)
        statements = ast.parse(source).body
        early.import_all(statements, package)
        early.import_late(source)
    except early.StopImporting as stop:
        line = early.first_import(statements, stop.line)
        if line is None:
            early.import_late(source)
    except (SyntaxError, ValueError) as error:
        raise early.CannotPrepare(f"it cannot be compiled: {error}") from error
    finally:
        os.environ.__class__ = unwatched
    if gpus_looked_for():
        raise early.CannotPrepare("its imports look for GPUs")
    FILES.extend(open_files())
    gc.freeze()  # Nothing of it will be garbage, nor have its pages touched by the collector.
    return path, code, stamp, {"touched": sorted(map(str, TOUCHED)), "line": line}


def main() -> None:
    """Prepare, report it, wait, run."""
    read_fd, write_fd, *outputs = (int(fd) for fd in sys.argv[1].split(","))
    for fd in (read_fd, write_fd, *outputs):
        os.set_inheritable(fd, False)
    program = sys.argv[2:]
    try:
        path, code, stamp, facts = prepare(program)
    except BaseException as error:
        send(write_fd, {"cannot": str(error) if isinstance(error, early.CannotPrepare) else repr(error)})
        os._exit(1)
    send(write_fd, {**facts, "threads": len(listed("/proc/self/task"))})
    told = b""
    while not told.endswith(b"\n"):
        more = os.read(read_fd, 1 << 16)
        if not more:  # The sidecar does not need this process any more.
            os._exit(1)
        told += more
    environments = json.loads(told)
    changes = environments[0]
    if len(environments) > 1:
        changes = environments[become_workers(len(environments), read_fd, write_fd, outputs)]
    for name in changes["unset"]:
        os.environ.pop(name, None)
    os.environ.update(changes["set"])
    for fd in (read_fd, write_fd, *outputs):
        os.close(fd)
    await_first_worker()
    run(program, path, code, stamp)


def become_workers(count: int, read_fd: int, write_fd: int, outputs: list[int]) -> int:
    """Fork so many workers, and end; in each of them: its rank.

    They become children of the sidecar, as if it had started them, and begin when it says that it knows of them.
    """
    import ctypes

    sidecar, we, prctl = os.getppid(), os.getpid(), ctypes.CDLL(None).prctl
    sys.stdout.flush()
    sys.stderr.flush()
    pids = []
    for rank in range(count):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        os.setsid()
        if rank:
            os.dup2(outputs[rank - 1], 1)
            os.dup2(outputs[rank - 1], 2)
        while os.getppid() == we:  # The sidecar adopts processes that lose their parent.
            time.sleep(0.0005)
        prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
        if os.read(read_fd, 1) != GO or os.getppid() != sidecar:
            os._exit(1)
        if "numpy.random" in sys.modules:  # Random numbers must differ; Python reseeds its own after a fork.
            sys.modules["numpy.random"].seed()
        return rank
    send(write_fd, {"pids": pids})
    os._exit(0)


def await_first_worker() -> None:
    """Give the first worker the moment it needs to open the port by which torch's workers find each other.

    One that comes sooner is refused, and tries again only after half a second.
    """
    ours = os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost") and "torch" in sys.modules
    if not ours or os.environ.get("RANK", "0") == "0":
        return
    port = f":{int(os.environ['MASTER_PORT']):04X}"
    until = time.monotonic() + MEETING_S
    while time.monotonic() < until:
        for path in ("/proc/net/tcp", "/proc/net/tcp6"):
            for line in content(path).splitlines():
                words = line.split(None, 4)
                if words[1].endswith(port) and words[3] == "0A":  # It listens.
                    return
        time.sleep(0.003)


def send(write_fd: int, facts: dict[str, Any]) -> None:
    """One line to the sidecar."""
    line = json.dumps(facts).encode() + b"\n"
    while line:
        line = line[os.write(write_fd, line) :]


if __name__ == "__main__":
    main()
