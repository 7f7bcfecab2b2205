"""A query that is answered again and again, each time from more of its data, until that is good enough or exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import duckdb
from msgspec import Struct
from msgspec.structs import replace
from sqlglot import exp, parse_one

from hocket.model.criterion import Duration, Goal, parse
from hocket.model.suspension import Suspension, chance_of_interruption, is_written_too, where_to_keep
from hocket.model.view import Tier
from hocket.runtimes.query.accuracy import ColumnAccuracy, EnvelopeAccuracy, IntervalAccuracy
from hocket.runtimes.query.answer_columns import to_arrow, to_pandas
from hocket.runtimes.query.answers import REPLICATES, CollectedAnswers, SampledAnswers
from hocket.runtimes.query.batch_sql import Rewriting, SampledSql
from hocket.runtimes.query.blocks import NotSplit, blocks_of
from hocket.runtimes.query.duckdb_errors import ctrl_c_as_interrupt, explained
from hocket.runtimes.query.engine import QueryEngine
from hocket.runtimes.query.engines import open_engine
from hocket.runtimes.query.prepared_layout import ENDS, UNITS
from hocket.runtimes.query.query_state import CountedBatch, QueryStateFolder, check_ledger
from hocket.runtimes.query.split_key import Mode, find_split
from hocket.runtimes.query.statement import DIALECT, NotResolved, QueryError, read_statement
from hocket.runtimes.query.unsplit_functions import macro_in, require_same_in_batches

if TYPE_CHECKING:
    import pandas
    import pyarrow

_NUMBERS = ("DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")  # or unsigned
_MIB = 1 << 20
_CELL_BYTES = 16  # of a state that was never written, about
_WRITE_MIB_S, _READ_MIB_S = 100.0, 400.0  # until it is measured
_SYNC_S = 0.02
# Errors of parts of a query that need not be errors of it; not that memory is short, or that it was interrupted.
_NOT_IN_BATCHES = (duckdb.DataError, duckdb.ProgrammingError)


class Answer(Struct, frozen=True):
    """What is known after a batch."""

    columns: tuple[str, ...]  # their names, as DuckDB has them
    rows: tuple[tuple[Any, ...], ...]  # of values and estimates, in the order of the query
    half_widths: tuple[tuple[float | None, ...], ...]  # of the intervals, cell by cell; None where there is none
    fraction: float  # of the data that was read
    elapsed_s: float  # since the query began
    accuracy: float | None  # of all of it at once, by the rule of the query; None if there is none yet
    how: str  # how the query is split, or why it is not
    bounded: tuple[int, ...] = ()  # the columns that have intervals, by number

    @property
    def is_exact(self) -> bool:
        """Whether all data were read."""
        return self.fraction == 1.0

    def arrow(self) -> pyarrow.Table:
        """As a table of Arrow: after each column with intervals come `NAME_lo` and `NAME_hi`. It needs pyarrow."""
        return to_arrow(self)

    def pandas(self) -> pandas.DataFrame:
        """As a DataFrame, with the same columns as `arrow()`. It needs pandas."""
        return to_pandas(self)


Answers = SampledAnswers | CollectedAnswers


class Query:
    """Iterate over it for its answers; the last one is exact, unless a goal was met before."""

    def __init__(
        self,
        sql: str,
        data: str | Path | QueryEngine,
        *,
        until: str = "",
        confidence: float = 0.95,
        accuracy: Literal["mean", "worst"] = "mean",
        weights: Mapping[str, float] | None = None,
        accuracy_rule: Literal["intervals", "envelope"] = "intervals",
        exact: bool = False,
        state: str | Path | None = None,
        interrupted_every_s: float | None = None,
        engine: Literal["duckdb", "spark"] = "duckdb",
        master: str = "",
        spark_conf: Mapping[str, str] | None = None,
    ) -> None:
        """Read the query and find how it can be split. Raises QueryError.

        Args:
            sql: one SELECT over the tables of `data`.
            data: a folder of Parquet or CSV files, a DuckDB file, or `tpch:SCALE`.
            until: when to stop, as `acc >= 99% within 30s`; by default at the exact answer.
            confidence: of each interval, and of the statement that a goal is met.
            accuracy: `acc` is one less the relative error: the mean of its columns, or the worst.
            weights: of columns in that mean, by name; 1 for others.
            accuracy_rule: `intervals` promise it; the `envelope` is Rotary's rule: how little estimates still move.
            exact: read all data at once.
            state: a folder in which the query keeps what it has after each batch, and from which it goes on.
            interrupted_every_s: write the state only where that costs less than what would have to be done again,
                if the process is killed so often; by default after every batch.
            engine: what computes the batches; `spark` for data that one machine does not hold.
            master: of Spark, as `spark://HOST:7077` or `local[4]`.
            spark_conf: further settings of Spark, as `{"spark.executor.memory": "4g"}`.
        """
        if not 0.5 <= confidence < 1:
            raise QueryError(f"confidence must be from 0.5 to below 1, not {confidence:g}")
        allowed = None if state is None else Path(state).expanduser().absolute()
        self._owns_data = isinstance(data, str | Path)
        self.data = (
            open_engine(data, engine, master, spark_conf, state=allowed) if isinstance(data, str | Path) else data
        )
        self.confidence = confidence
        self.ledger: tuple[CountedBatch, ...] = ()  # the batches that are in the present answer
        self._interrupted_every_s = interrupted_every_s
        self._saved = 0  # batches that are in the file
        self._spent_s = 0.0  # by this query before this process
        self._suspended_s = 0.0  # for how long the process was suspended
        self._began_s = self._now_s()
        self._write_mib_s, self._read_mib_s, self._file_mib, self._file_rows = _WRITE_MIB_S, _READ_MIB_S, 0.0, 0
        statement, unresolved = _read(sql, self.data)
        if statement is not None and (macro := macro_in(statement, self.data.connection)):
            statement, unresolved = None, NotResolved(f"macro '{macro}' is not looked into")
        described = _described(sql, self.data, unresolved)
        self.data.check_statement(statement if statement is not None else parse_one(sql, dialect=DIALECT))
        self.columns = tuple(name for name, _kind in described)
        self._text, self._statement = sql, statement
        self._answers: Answers | None = None
        self._rewriting: Rewriting | None = None
        self._uses_batches = True  # False: the first answer is from one batch, the next from all data at once
        self.mode: Mode | None = None
        self.rows = 0.0  # of the tables that are split
        try:
            if exact:
                raise NotSplit("as asked")
            if statement is None:
                raise NotSplit(str(unresolved))
            self._split(statement, [kind for _name, kind in described], accuracy_rule)
        except NotSplit as reason:
            self.how = f"all at once: {reason}"
        except duckdb.Error as error:  # Statistics of the data are looked up, which reads them.
            raise explained("the data cannot be read", error) from error
        if changed := self.data.changed_source():
            self.how = f"{self.how}; {changed}"
        self._columns = ColumnAccuracy(self.columns, accuracy == "worst", weights or {})
        self.accuracy_rule = accuracy_rule
        self._goal = self._read_goal(until)
        self._folder = QueryStateFolder(state) if state is not None else None  # Last: it is locked.

    def _split(self, statement: exp.Select, kinds: list[str], accuracy_rule: str) -> None:
        """Find how to answer in batches. `kinds` are the types of the columns. Raises NotSplit."""
        require_same_in_batches(statement)
        if len(kinds) != len(statement.expressions):
            raise NotSplit("an expression stands for several columns")
        top = blocks_of(statement)
        split = find_split(top, self.data)
        self._rewriting = rewriting = Rewriting(top, split, self.data.unit_rows, self.data.rows)
        if split.mode is Mode.SAMPLED:
            sampled = _bounded_numbers(rewriting.sampled(REPLICATES), kinds)
            self._answers = SampledAnswers(self.data, sampled)
        else:
            self._answers = CollectedAnswers(self.data, rewriting.collected())
        self.mode, self.how = split.mode, f"{split}; {self.data.how_read(split)}"
        self.rows = sum(self.data.rows(table) for table in {use.table for use in split.columns})
        # The envelope is a rule about several answers.
        self._uses_batches = self._answers.continues_in_batches or accuracy_rule == "envelope"
        if not self._uses_batches:
            self.how = f"{self.how}; after one answer all at once: COUNT(DISTINCT …) is merged from all its values"

    def __iter__(self) -> Iterator[Answer]:
        self._began_s, self._spent_s, self.ledger, self._saved = self._now_s(), 0.0, (), 0
        try:
            with ctrl_c_as_interrupt():
                yield from self._progress_or_all_at_once()
        except duckdb.Error as error:
            raise explained("the query failed", error) from error

    def _progress_or_all_at_once(self) -> Iterator[Answer]:
        has_answered = False
        try:
            for answer in self._progress():
                has_answered = True
                yield answer
        except _NOT_IN_BATCHES as error:
            if has_answered or self._answers is None:
                raise
            self._give_up_batches(error)
            yield self._all_at_once()

    def _give_up_batches(self, error: duckdb.Error) -> None:
        """DuckDB computes the query, but not its parts, or an estimate in place of a whole number."""
        self._answers, self._uses_batches, self.mode, self.ledger = None, False, None, ()
        self.how = f"all at once: in batches it cannot be computed ({str(error).splitlines()[0][:120]})"

    @cached_property
    def _plain(self) -> str:
        """The query as it is run at once."""
        return self._statement.sql(DIALECT) if self._statement is not None else self._text

    @property
    def _once(self) -> dict[str, str]:
        """Tables to compute before the first batch, by name."""
        return self._rewriting.once if self._rewriting is not None else {}

    @property
    def _used(self) -> dict[str, str]:
        """Tables to compute before the second batch, by name."""
        return {used.name: used.sql for used in self._rewriting.used.values()} if self._rewriting is not None else {}

    def meets_goal(self, answer: Answer) -> bool:
        """Whether the answer's accuracy is what was asked for; an exact answer is, whatever was asked."""
        if answer.is_exact:
            return True
        goal, accuracy = self._goal, answer.accuracy
        return goal is not None and accuracy is not None and goal.met_by(accuracy)

    def is_in_time(self, answer: Answer) -> bool:
        """Whether the answer came before the goal's deadline."""
        deadline = None if self._goal is None else self._goal.deadline
        return not isinstance(deadline, Duration) or answer.elapsed_s <= deadline.time_s

    def set_resources(self, threads: int, mem_mib: float = 0.0) -> None:
        """Go on with other resources from the next batch on. Raises QueryError.

        Args:
            threads: of DuckDB.
            mem_mib: memory that DuckDB may use; 0 leaves it as it is.
        """
        try:
            self.data.connection.execute(f"SET threads = {int(threads)}")
            if mem_mib:
                self.data.connection.execute(f"SET memory_limit = '{mem_mib:.3f}MiB'")
        except duckdb.Error as error:
            raise QueryError(f"{threads} threads cannot be set: {' '.join(str(error).split())[:300]}") from error

    def interrupt(self) -> None:
        """End the batch under way, from another thread; nothing of it is counted."""
        self.data.interrupt()

    def leave(self, keep: Tier | None = None) -> Tier:
        """The process is about to end: write the state, unless it is cheaper to do its batches again.

        Says where the state is: on disk, or nowhere beyond what was written before. Raises QueryError.

        Args:
            keep: `Tier.DISK` or `Tier.NONE` if that is not for the query to choose.
        """
        if self._folder is None or len(self.ledger) == self._saved:
            return Tier.DISK if self._saved else Tier.NONE
        if keep is None and self._interrupted_every_s is not None:
            keep = where_to_keep(self.suspension(leaves=True))
        if keep is Tier.NONE:
            return Tier.NONE
        self.save()
        return Tier.DISK

    def save_before_suspension(self) -> bool:
        """The process is about to be suspended: write the state if it may be lost; whether it was. Raises QueryError.

        It is believed to be suspended for as long as it has run.
        """
        every_s = self._interrupted_every_s
        if self._folder is None or len(self.ledger) == self._saved or not every_s:
            return False
        at_risk = replace(
            self.suspension(), leaves=True, interruption=chance_of_interruption(1.0 / every_s, self._elapsed_s())
        )
        if not is_written_too(at_risk):
            return False
        self.save()
        return True

    def suspension(self, *, leaves: bool = False) -> Suspension:
        """What there is to lose now, and what it takes to keep it.

        Args:
            leaves: the process is about to end, so that what it has in memory is lost for certain.
        """
        rows = sum(batch.rows for batch in self.ledger)
        state_mib = rows * len(self.columns) * _CELL_BYTES / _MIB
        if self._file_rows:
            state_mib = rows * self._file_mib / self._file_rows
        unsaved_s = sum(batch.took_s for batch in self.ledger[self._saved :])
        next_s = self.ledger[-1].took_s if self.ledger else 0.0
        every_s = self._interrupted_every_s
        # The next batch is about twice as long, if there is one; the process is certain to leave when it is told so.
        chance = 1.0 if leaves else chance_of_interruption(1.0 / every_s, 2.0 * next_s) if every_s else 0.0
        return Suspension(
            state_mib, unsaved_s, state_mib / self._write_mib_s + _SYNC_S, state_mib / self._read_mib_s,
            interruption=chance, leaves=leaves, memory_mib=0.0 if leaves else inf,
        )  # fmt: skip

    def _progress(self) -> Iterator[Answer]:
        db, answers = self.data.connection, self._answers
        if answers is None:
            yield self._all_at_once()
            return
        self._load()
        self._compute_once(answers, self._once)
        self._rule = self._accuracy()
        done, is_reduced = self.ledger[-1].hi + 1 if self.ledger else 0, False
        if done:  # What was known is said at once.
            found = self._answer_after(answers, done)
            yield found
            if self._is_enough(found):
                return
        for end in (e for e in ENDS if e > done):
            began_s = self._now_s()
            if done and self._uses_batches and not is_reduced:
                try:
                    self._compute_once(answers, self._used)
                except _NOT_IN_BATCHES as error:
                    self._give_up_batches(error)  # Of rows, maybe, that the query itself does not come to.
                is_reduced = True
            if done and not self._uses_batches:
                found = self._all_at_once()
                # Nothing of it is in the state, which is not needed any more.
                self.ledger += (CountedBatch(done, UNITS - 1, 0, self._now_s() - began_s),)
                self._saved = len(self.ledger)
                yield found
                self._is_enough(found)
                return
            added = answers.add(done, end - 1)
            self.data.check_files()
            self.ledger += (CountedBatch(done, end - 1, added, self._now_s() - began_s),)
            done = end
            if done == UNITS:
                check_ledger(db, self.ledger, UNITS)
            found = self._answer_after(answers, done)
            if self._is_kept(done):
                self.save()
            yield found
            if self._is_enough(found):
                return

    def _compute_once(self, answers: Answers, tables: Mapping[str, str]) -> None:
        for name, sql in tables.items():
            self.data.compute_once(name, sql, for_answers=answers.reads(name))

    def _all_at_once(self) -> Answer:
        rows = self.data.rows_of(self._plain)
        nothing = (None,) * len(self.columns)
        self.data.check_files()
        return self._answer(rows, [nothing] * len(rows), 1.0, 1.0)

    def _answer_after(self, answers: Answers, done: int) -> Answer:
        table = answers.answer(done, self.confidence)
        promised = 1.0 if done == UNITS else self._rule.of(table.rows, table.half_widths)
        return self._answer(table.rows, table.half_widths, done / UNITS, promised)

    def _is_enough(self, found: Answer) -> bool:
        """Is no further batch wanted? When all was read and its answer was taken, the state is not needed any more."""
        if found.is_exact and self._folder is not None:
            self._folder.remove()
        return found.is_exact or (self._goal is not None and (self.meets_goal(found) or not self.is_in_time(found)))

    def _is_kept(self, done: int) -> bool:
        """Is the state to be written now? Otherwise the process has it, and it is done again if that is killed."""
        if self._folder is None:
            return False
        if self._interrupted_every_s is None:
            return True  # The last one too: its answer may not have been taken yet.
        return done < UNITS and where_to_keep(self.suspension()) is Tier.DISK

    def identity(self) -> dict[str, str]:
        """What a state must be of, to go on from it."""
        return {"sql": self._plain, "data": self.data.identity(), "batches": f"{UNITS}/{REPLICATES}/{self.how}"}

    def _load(self) -> None:
        if self._folder is None:
            return
        found = self._folder.load(self.data.connection, self.identity())
        if found is None:
            return
        self.ledger, self._spent_s, self._saved = found.ledger, found.elapsed_s, len(found.ledger)
        self._measure(found.bytes)
        self._read_mib_s = max(self._file_mib / max(found.read_s, 1e-6), 1e-3)

    def save(self) -> None:
        """Write the state now. Raises QueryError, and the state before is still there."""
        assert self._folder is not None
        began_s = self._now_s()
        size = self._folder.save(self.data.connection, self.identity(), self.ledger, self._elapsed_s())
        self._saved = len(self.ledger)
        self._measure(size)
        self._write_mib_s = max(self._file_mib / max(self._now_s() - began_s - _SYNC_S, 1e-3), 1e-3)

    def _measure(self, size: int) -> None:
        self._file_mib, self._file_rows = size / _MIB, sum(batch.rows for batch in self.ledger)

    def _elapsed_s(self) -> float:
        return self._spent_s + self._now_s() - self._began_s

    def _now_s(self) -> float:
        return monotonic() - self._suspended_s

    def was_suspended(self, suspended_s: float) -> None:
        """The process was suspended; that time does not count as the query's.

        Args:
            suspended_s: for how long.
        """
        self._suspended_s += suspended_s

    def close(self) -> None:
        """Close the data, unless they were given as an object, and the state's folder."""
        if self._owns_data:
            self.data.close()
        if self._folder is not None:
            self._folder.close()

    def _answer(
        self,
        rows: list[tuple[Any, ...]],
        half_widths: list[tuple[float | None, ...]],
        fraction: float,
        accuracy: float | None,
    ) -> Answer:
        elapsed_s = self._elapsed_s()
        bounded = self._answers.bounded if self._answers is not None else ()
        return Answer(self.columns, tuple(rows), tuple(half_widths), fraction, elapsed_s, accuracy, self.how, bounded)

    def _accuracy(self) -> IntervalAccuracy | EnvelopeAccuracy:
        """The rule, anew for each run."""
        answers = self._answers
        bounded, unbounded = (answers.bounded, answers.unbounded) if isinstance(answers, SampledAnswers) else ((), ())
        if self.accuracy_rule == "envelope":
            return EnvelopeAccuracy(self._columns, (*bounded, *unbounded))
        return IntervalAccuracy(self._columns, bounded, self.confidence, len(ENDS))

    def _read_goal(self, until: str) -> Goal | None:
        if not until:
            return None
        try:
            goal = parse(until)
        except ValueError as error:
            raise QueryError(f"until: {error}") from error
        if not isinstance(goal, Goal) or goal.metric != "acc" or goal.relation != ">=":
            raise QueryError(f"until: a query is run until 'acc >= VALUE [within TIME]', not '{until}'")
        if not 0 < goal.target <= 1:
            raise QueryError(f"until: acc must be above 0 and up to 100%, not {goal.target:g}")
        if goal.deadline is not None and not isinstance(goal.deadline, Duration):
            raise QueryError(f"until: a query's limit is a time, not '{goal.deadline}'")
        if isinstance(self._answers, SampledAnswers):
            unbounded = [f"'{self.columns[n]}'" for n in self._answers.unbounded]
            if unbounded and self.accuracy_rule == "intervals":
                raise QueryError(f"until: {', '.join(unbounded)} has no interval, so that acc cannot be promised")
        elif self._answers is not None:
            raise QueryError(f"until: its rows are final but not all there ({self.how}): acc cannot be promised")
        return goal


def _read(sql: str, data: QueryEngine) -> tuple[exp.Select | None, NotResolved | None]:
    """The query, or which of its columns are not known."""
    try:
        return read_statement(sql, data.schema), None
    except NotResolved as error:
        return None, error


def _described(sql: str, data: QueryEngine, unresolved: NotResolved | None) -> list[tuple[str, str]]:
    """The columns of the answer and their types, as DuckDB has them, which checks types and functions on the way."""
    try:
        return [(row[0], row[1]) for row in data.connection.execute(f"DESCRIBE {sql}").fetchall()]
    except duckdb.Error as error:
        if unresolved is not None:
            raise unresolved from error
        raise explained("the query cannot be run", error) from error


def _bounded_numbers(sampled: SampledSql, kinds: list[str]) -> SampledSql:
    """Only numbers have intervals: an expression of aggregates may be a text or a date."""
    return sampled._replace(
        outputs=tuple(
            output._replace(has_interval=output.has_interval and _is_number(kind))
            for output, kind in zip(sampled.outputs, kinds, strict=True)
        )
    )


def _is_number(kind: str) -> bool:
    return kind.removeprefix("U").startswith(_NUMBERS) and not kind.endswith("]")
