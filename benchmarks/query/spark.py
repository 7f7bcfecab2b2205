"""The same answers by Spark, with workers of which one is killed: `python -m benchmarks.query.spark --scale 1`.

The 22 queries of TPC-H on a standalone cluster of this machine, as Parquet files. While a query is on its way, one
worker and its executor are killed with -9; the other queries run on what is left. Every last answer must be that of a
plain run of DuckDB and, with --answers, the published one.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.query.cost import QUERIES, published, same_rows, texts_of, tpch_queries
from hocket.query import Answer, Query
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.spark_data import SparkData, open_spark_data
from hocket.runtimes.query.spark_session import java_home

_STARTS_S = 300.0


class SparkCluster:
    """A master and workers, each a process of this machine."""

    def __init__(self, folder: Path, workers: int, memory: str) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.master = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            self._start("master.Master", "--port", str(port))
            self._wait_for(port)
            for number in range(workers):
                work = str(folder / f"worker-{number}")
                self._start("worker.Worker", "--cores", "1", "--memory", memory, "--work-dir", work, self.master)
        except BaseException:
            self.close()
            raise

    def _start(self, what: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1"]
        env = {
            **os.environ, "JAVA_HOME": java_home(), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "512m",
            # What is killed leaves its files there, to be removed with the rest.
            "SPARK_LOCAL_DIRS": str(self._folder), "SPARK_DAEMON_JAVA_OPTS": f"-Djava.io.tmpdir={self._folder}",
        }  # fmt: skip
        with (self._folder / f"{what}-{len(self._processes)}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments], env=env, stdout=log, stderr=log, start_new_session=True
                )
            )

    def _wait_for(self, port: int) -> None:
        until_s = time.monotonic() + _STARTS_S
        while time.monotonic() < until_s and self._processes[0].poll() is None:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                return
            time.sleep(0.2)
        raise SystemExit(f"benchmarks: the master of Spark did not start; see {self._folder}")

    def kill_worker(self) -> None:
        """The last one, with its executor: nothing of it ends in an orderly way."""
        os.killpg(self._processes[-1].pid, signal.SIGKILL)
        self._processes[-1].wait()

    def close(self) -> None:
        """End all."""
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def tpch_files(scale: float, kept: Path | None) -> Iterator[Path]:
    """A folder of Parquet files; one that is given is filled once."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as temporary:
        folder = (kept or Path(temporary)) / f"tpch-{scale:g}"
        if not folder.exists():
            part = folder.with_suffix(".part")
            part.mkdir(parents=True, exist_ok=True)
            with closing(open_data(f"tpch:{scale}", 2, may_write=True)) as data:
                for table in data.schema:
                    data.connection.execute(f"COPY {table} TO '{part}/{table}.parquet'")
            part.rename(folder)
        yield folder


def main(argv: list[str]) -> None:
    """Run all queries, a line for each; ends with 1 if an answer is another one."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.query.spark", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of TPC-H")
    parser.add_argument("--queries", type=int, nargs="*", default=list(QUERIES), help="as 1 6; all by default")
    parser.add_argument("--workers", type=int, default=2, help="each with one core")
    parser.add_argument("--memory", default="2g", help="of each worker")
    parser.add_argument("--kill-in", type=int, default=5, help="the query in which a worker is killed; 0: in none")
    parser.add_argument("--kill-after", type=int, default=2, help="answers of that query; the next batch is under way")
    parser.add_argument("--folder", type=Path, help="where data are kept, and found again")
    parser.add_argument("--answers", type=Path, help="a folder with q01.csv … as DuckDB publishes them")
    options = parser.parse_args(argv)
    print(f"{machine()}\npython -m benchmarks.query.spark {' '.join(argv)}", flush=True)
    with (
        tpch_files(options.scale, options.folder) as files,
        tempfile.TemporaryDirectory(prefix="hocket-spark-") as logs,
    ):
        cluster = SparkCluster(Path(logs), options.workers, options.memory)
        with closing(cluster), closing(open_data(files, 1)) as plain:
            conf = {"spark.executor.memory": "1400m", "spark.executor.cores": "1", "spark.driver.memory": "1g"}
            conf["spark.sql.shuffle.partitions"] = "4"  # for two cores; 200 are for a cluster
            with closing(open_spark_data(files, cluster.master, conf, threads=1)) as data:
                wrong = [number for number in options.queries if not _is_right(options, cluster, data, plain, number)]
    print(f"{len(options.queries) - len(wrong)} of {len(options.queries)} are right")
    sys.exit(f"wrong: {wrong}" if wrong else 0)


def _is_right(
    options: argparse.Namespace, cluster: SparkCluster, data: SparkData, plain: DuckdbData, number: int
) -> bool:
    sql, began_s, killed = tpch_queries()[number], time.monotonic(), list[str]()
    query, answers = Query(sql, data), list[Answer]()

    def kill() -> None:
        cluster.kill_worker()
        killed.append(f"; a worker was killed in batch {len(answers) + 1}")

    for answer in query:
        answers.append(answer)
        if number == options.kill_in and len(answers) == options.kill_after:
            threading.Timer(0.5, kill).start()
    took_s, rows = time.monotonic() - began_s, answers[-1].rows
    is_plain = same_rows(rows, plain.connection.execute(sql).fetchall())
    said = published(options.answers, number, texts_of(rows))
    same = f"= plain: {'yes' if is_plain else 'NO'}, = published: {said or '-'}"
    print(f"q{number}: {took_s:.1f} s, {len(answers)} answers, {same}{''.join(killed)}; {query.how}", flush=True)
    return is_plain and said in ("", "yes")


if __name__ == "__main__":
    main(sys.argv[1:])
