"""A query that is answered again and again, each time from more of its data, until that is good enough or exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import duckdb
from msgspec import Struct
from sqlglot import exp

from hocket.model.criterion import Duration, Goal, parse
from hocket.runtimes.query.accuracy import ColumnAccuracy, EnvelopeAccuracy, IntervalAccuracy
from hocket.runtimes.query.answer_columns import to_arrow, to_pandas
from hocket.runtimes.query.answers import REPLICATES, CollectedAnswers, SampledAnswers
from hocket.runtimes.query.batch_sql import Rewriting, SampledSql
from hocket.runtimes.query.blocks import NotSplit, blocks_of
from hocket.runtimes.query.data_sources import open_data
from hocket.runtimes.query.duckdb_data import DuckdbData
from hocket.runtimes.query.duckdb_errors import explained
from hocket.runtimes.query.prepared_layout import ENDS, UNITS
from hocket.runtimes.query.split_key import Mode, find_split
from hocket.runtimes.query.statement import DIALECT, NotResolved, QueryError, read_statement

if TYPE_CHECKING:
    import pandas
    import pyarrow

_NUMBERS = ("DECIMAL", "DOUBLE", "FLOAT", "HUGEINT", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")  # or unsigned


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
        data: str | Path | DuckdbData,
        *,
        until: str = "",
        confidence: float = 0.95,
        accuracy: Literal["mean", "worst"] = "mean",
        weights: Mapping[str, float] | None = None,
        accuracy_rule: Literal["intervals", "envelope"] = "intervals",
        exact: bool = False,
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
        """
        if not 0.5 <= confidence < 1:
            raise QueryError(f"confidence must be from 0.5 to below 1, not {confidence:g}")
        self.data = data if isinstance(data, DuckdbData) else open_data(data)
        self.confidence = confidence
        statement, unresolved = _read(sql, self.data)
        described = _described(sql, self.data, unresolved)
        self.columns = tuple(name for name, _kind in described)
        self._plain = statement.sql(DIALECT) if statement is not None else sql
        self._answers: Answers | None = None
        self._once: dict[str, str] = {}
        self.mode: Mode | None = None
        try:
            if exact:
                raise NotSplit("as asked")
            if statement is None:
                raise NotSplit(str(unresolved))
            top = blocks_of(statement)
            split = find_split(top, self.data)
            rewriting = Rewriting(top, split, self.data.unit_rows, self.data.rows)
            self._once = rewriting.once
            if split.mode is Mode.SAMPLED:
                sampled = _bounded_numbers(rewriting.sampled(REPLICATES), [kind for _name, kind in described])
                self._answers = SampledAnswers(self.data.connection, sampled)
            else:
                self._answers = CollectedAnswers(self.data.connection, rewriting.collected())
            self.mode, self.how = split.mode, f"{split}; {self.data.how_read(split)}"
        except NotSplit as reason:
            self.how = f"all at once: {reason}"
        except duckdb.Error as error:  # Statistics of the data are looked up, which reads them.
            raise explained("the data cannot be read", error) from error
        if changed := self.data.changed_source():
            self.how = f"{self.how}; {changed}"
        self._columns = ColumnAccuracy(self.columns, accuracy == "worst", weights or {})
        self.accuracy_rule = accuracy_rule
        self._goal = self._read_goal(until)

    def __iter__(self) -> Iterator[Answer]:
        began_s = monotonic()
        try:
            yield from self._progress(began_s)
        except duckdb.Error as error:
            raise explained("the query failed", error) from error

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

    def _progress(self, began_s: float) -> Iterator[Answer]:
        db, answers = self.data.connection, self._answers
        if answers is None:
            rows = db.execute(self._plain).fetchall()
            nothing = (None,) * len(self.columns)
            yield self._answer(rows, [nothing] * len(rows), 1.0, 1.0, began_s)
            return
        for name, sql in self._once.items():
            db.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")
        done = 0
        accuracy = self._accuracy()
        for end in ENDS:
            answers.add(done, end - 1)
            self.data.check_files()
            done = end
            table = answers.answer(done, self.confidence)
            promised = 1.0 if done == UNITS else accuracy.of(table.rows, table.half_widths)
            found = self._answer(table.rows, table.half_widths, done / UNITS, promised, began_s)
            yield found
            if self._goal is not None and (self.meets_goal(found) or not self.is_in_time(found)):
                return

    def _answer(
        self,
        rows: list[tuple[Any, ...]],
        half_widths: list[tuple[float | None, ...]],
        fraction: float,
        accuracy: float | None,
        began_s: float,
    ) -> Answer:
        elapsed_s = monotonic() - began_s
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


def _read(sql: str, data: DuckdbData) -> tuple[exp.Select | None, NotResolved | None]:
    """The query, or which of its columns are not known."""
    try:
        return read_statement(sql, data.schema), None
    except NotResolved as error:
        return None, error


def _described(sql: str, data: DuckdbData, unresolved: NotResolved | None) -> list[tuple[str, str]]:
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
            output._replace(has_interval=output.has_interval and kind.removeprefix("U").startswith(_NUMBERS))
            for output, kind in zip(sampled.outputs, kinds, strict=True)
        )
    )
