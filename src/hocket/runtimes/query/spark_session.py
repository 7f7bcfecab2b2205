"""A session of Spark: it starts without output, says in one line why it cannot start, and leaves no process behind."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from hocket.runtimes.query.statement import QueryError

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_LEAST_JAVA = 17
_CONNECT_S = 10.0
_WORKERS_S = 60.0  # until the master gives one
_ENDS_S = 20.0
_LONGEST = 500
_READ_BYTES = 1 << 16  # of the driver's log
# So that Spark computes as DuckDB does, or fails: no overflow that is not noticed, no digits that are left out.
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.caseSensitive": "false",
}
_STARTED_WITH = {"spark.app.name": "hocket query", "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}


class SparkConnection:
    """A session with a master."""

    def __init__(self, master: str, conf: Mapping[str, str] | None = None) -> None:
        """Start the driver in a process of its own, and wait for a worker. Raises QueryError."""
        self.master = master
        _require_pyspark()
        logging.getLogger("SQLQueryContextLogger").disabled = True  # What it writes to the terminal is raised, too.
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            raise QueryError("Spark: this process has a session of Spark already, and can have one only")
        require_master(master)
        home = java_home()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name, and is gone with us
        self._process: Any = None
        try:
            self.session = self._started(master, dict(conf or {}), home)
            self._wait_for_worker()
        except BaseException:
            self.close()
            raise

    def _started(self, master: str, conf: dict[str, str], home: str) -> SparkSession:
        from py4j.protocol import Py4JError
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        chosen = {**_STARTED_WITH, **(local if _is_local(master) else {}), **conf, "spark.master": master}
        settings = SparkConf(loadDefaults=False).setAll([*chosen.items(), *_SETTINGS.items()])
        try:
            # A session of its own: a signal to our process group is ours to heed. It ends when our end of its
            # standard input is closed, by whatever.
            with _environment(JAVA_HOME=home), _same_interrupt(), _quiet():
                options = {"stdout": self._log, "stderr": self._log, "start_new_session": True}
                gateway = launch_gateway(settings, options)
                self._process = gateway.proc
                return SparkSession(SparkContext(conf=settings, gateway=gateway))
        except (PySparkException, Py4JError, OSError) as error:
            raise QueryError(f"Spark cannot be started with master '{master}': {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        """Why a driver did not start: the end of its log says more than Python's exception."""
        with suppress(OSError, ValueError):
            size = os.fstat(self._log.fileno()).st_size
            last = os.pread(self._log.fileno(), _READ_BYTES, max(0, size - _READ_BYTES)).decode(errors="replace")
            if "All masters are unresponsive" in last:
                from pyspark import __version__

                return f"what listens there is no master of Spark {__version__}, or of another version"
            causes = [line for line in last.splitlines() if re.search(r"Exception|Error\b|ERROR|error:", line)]
            if causes:
                return " ".join(causes[-1].split())[:_LONGEST]
        return one_line(error)

    def _wait_for_worker(self) -> None:
        if _is_local(self.master):
            return
        until_s = monotonic() + _WORKERS_S
        context = self.session.sparkContext._jsc.sc()
        while context.getExecutorMemoryStatus().size() < 2:  # The driver is one.
            if context.isStopped():
                raise QueryError(
                    f"Spark: the master at '{self.master}' ended the application: {self._reason(OSError())}"
                )
            if monotonic() > until_s:
                raise QueryError(
                    f"Spark: the master at '{self.master}' gave no worker within {_WORKERS_S:.0f} s: "
                    "none is free, or none has the memory and cores that are asked for (--spark-conf)"
                )
            sleep(0.2)

    def arrow(self, sql: str) -> pyarrow.Table:
        """The rows of a SELECT. Raises QueryError."""
        with self.errors("the query failed"):
            return self.session.sql(sql).toArrow()

    def arrow_schema(self, rows: DataFrame) -> pyarrow.Schema:
        """The columns and types that rows will have. Raises QueryError."""
        with self.errors("the data cannot be read"):
            from pyspark.sql.pandas.types import to_arrow_schema

            return to_arrow_schema(rows.schema)

    def row(self, sql: str) -> tuple[Any, ...]:
        """The only row of a SELECT. Raises QueryError."""
        with self.errors("the data cannot be read"):
            return tuple(self.session.sql(sql).collect()[0])

    def name(self, view: str, rows: DataFrame | str) -> None:
        """Give rows a name for other queries. Raises QueryError."""
        with self.errors("the query cannot be run"):
            found = self.session.sql(rows) if isinstance(rows, str) else rows
            found.createOrReplaceTempView(view)

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Say what Spark could not do in one line."""
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            with _quiet():
                yield
        except (PySparkException, Py4JJavaError) as error:
            raise QueryError(f"{what}: {explained(error, self.master)}") from error
        except (Py4JError, OSError) as error:
            raise QueryError(f"{what}: the driver of Spark has ended: {self._reason(error)}") from error

    def interrupt(self) -> None:
        """End what is under way, from another thread."""
        with suppress(Exception):  # There may be nothing any more that could be ended.
            self.session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop the session, and its process."""
        from pyspark import SparkContext

        session = self.__dict__.pop("session", None)
        if session is not None:
            stopping = threading.Thread(target=_stopped, args=(session,), daemon=True)
            stopping.start()
            stopping.join(_ENDS_S)
        if self._process is not None:
            if SparkContext._gateway is not None:
                with suppress(Exception):
                    SparkContext._gateway.shutdown()
            # Another session of this process starts another driver.
            SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
            with suppress(OSError):
                self._process.stdin.close()
            try:
                self._process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        self._log.close()


def _stopped(session: SparkSession) -> None:
    with suppress(Exception):  # A driver that was killed has nothing to stop.
        session.stop()


def explained(error: Exception, master: str) -> str:
    """An error of Spark, in one line."""
    said = str(error)
    missing = re.search(r"FILE_NOT_EXIST|FileNotFoundException|does not exist", said)
    file = re.search(r"(?:reading file |File )(\S+?)[.,]?(?:\s|$)", said)
    if missing and file is not None:
        path = re.sub(r"^file:/+", "/", file[1])
        return f"the workers of '{master}' do not see '{path}'" if Path(path).exists() else f"'{path}' is gone"
    if "SparkOutOfMemoryError" in said or "OutOfMemoryError" in said:
        return f"a worker has too little memory ({one_line(error)[:200]}): give it more (--spark-conf)"
    return one_line(error)


def one_line(error: Exception) -> str:
    """The first line of a message that says what happened."""
    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    kept = [
        line.removeprefix(": ") for line in lines if line and not line.startswith("An error occurred while calling")
    ]
    said = causes[-1] if causes else (kept[0] if kept else " ".join(lines))
    return re.sub(r"^(?:[\w$]+\.)+[\w$]+(?:Exception|Error): ", "", said)[:_LONGEST] or type(error).__name__


def _require_pyspark() -> None:
    if find_spec("pyspark") is None:
        raise QueryError("the engine Spark needs pyspark: pip install 'hocket[spark]'")
    from pyspark import __version__

    if not __version__.startswith("4."):
        raise QueryError(f"the engine Spark needs pyspark 4, and there is {__version__}: pip install 'hocket[spark]'")
    if find_spec("pyarrow") is None:
        raise QueryError("the engine Spark needs pyarrow: pip install 'hocket[spark]'")


def java_home() -> str:
    """Where a Java is that runs Spark: JAVA_HOME, or that on the PATH. Raises QueryError."""
    home = os.environ.get("JAVA_HOME", "")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        raise QueryError(
            f"the engine Spark needs Java {_LEAST_JAVA} or newer, and there is none: install a JRE "
            "(Debian: openjdk-17-jre-headless), or set JAVA_HOME"
        )
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=120).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise QueryError(f"Java at '{java}' cannot be run: {one_line(error)}") from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', said)
    version = 0 if found is None else int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < _LEAST_JAVA:
        raise QueryError(f"the engine Spark needs Java {_LEAST_JAVA} or newer, and '{java}' is {version}")
    return str(Path(java).resolve().parent.parent)


def _is_local(master: str) -> bool:
    return master.startswith("local")


def require_master(master: str) -> None:
    """Something must listen where a master is said to be: Spark itself tries for a minute. Raises QueryError."""
    if re.fullmatch(r"local(\[(\*|\d+)(,\d+)?\]|-cluster\[\d+,\d+,\d+\])?|yarn|k8s://\S+", master):
        return
    found = re.fullmatch(r"spark://(.+)", master)
    addresses = [a.rpartition(":") for a in found[1].split(",")] if found is not None else []
    if not addresses or not all(host and port.isdecimal() for host, _, port in addresses):
        raise QueryError(f"master '{master}' must be spark://HOST:PORT, local[N], yarn or k8s://…")
    said = ""
    for host, _, port in addresses:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
            return
        except (OSError, OverflowError) as error:
            said = getattr(error, "strerror", None) or str(error)
    raise QueryError(f"there is no Spark master at '{master}': {said}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing for the terminal: a pandas that is newer than pyspark knows, a call that Ctrl-C has ended."""
    log = logging.getLogger()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        log.addFilter(_is_of_others)
        try:
            yield
        finally:
            log.removeFilter(_is_of_others)


def _is_of_others(record: logging.LogRecord) -> bool:
    return "while sending command" not in str(record.msg)


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """Spark takes SIGINT for itself."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
