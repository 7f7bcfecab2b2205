"""When a job is done: one grammar for training and queries.

    criterion = metric (">=" | "<=") value ["within" limit]      acc >= 95% within 1h
              | metric "changes" "<" value ["within" limit]      acc changes < 0.001 within 30 epochs
              | "for" limit                                      for 2h
    value     = number ["%"]
    limit     = number (epochs | steps | s | m | h | d)          units may be written out: 2 hours

Rotary's templates are a second spelling of the same values: `ACC MIN 95% WITHIN 3600 SECONDS` (>=), `MAX`
(<=), `ACC DELTA 0.001 WITHIN 30 EPOCHS` (changes <), `FOR 2 HOURS`. Words of the grammar may have any case; a
metric keeps its own, except that an all-upper-case one before MIN, MAX or DELTA is lower-cased. No metric may
be named like a word of the grammar (RESERVED), in any case; names of time units and `steps` are free, since a metric
only ever stands first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Context, Decimal
from math import inf, isfinite
from typing import Literal, NamedTuple, NoReturn, TypeAlias, assert_never

from msgspec import Struct

RESERVED = frozenset({"for", "within", "min", "max", "delta", "changes", "epoch", "epochs"})
MAX_TEXT = 400  # characters of one criterion
MAX_METRIC = 100  # characters of a metric's name; every printed criterion is then shorter than MAX_TEXT
MAX_EPOCHS = 10**12

Relation: TypeAlias = Literal[">=", "<="]
Outcome: TypeAlias = Literal["attained", "missed", "open"]

_METRIC = r"[A-Za-z_](?:[A-Za-z0-9_./@-]*[A-Za-z0-9_])?"
_METRIC_RULE = f"a metric name (letters, digits and _, with . / @ - inside; up to {MAX_METRIC} characters)"
_EPOCHS_RULE = f"a whole number of epochs from 1 to {MAX_EPOCHS}"
_STEPS_RULE = f"a whole number of steps from 1 to {MAX_EPOCHS}"
# Scaling happens in decimal, so that 95% is 0.95 and 1.1h is 3960s to the last bit; with no traps, what is
# out of range becomes infinite and is refused by the rules below.
_DECIMAL = Context(prec=MAX_TEXT + 100, traps=[])
# Clocks add up rounded intervals: a deadline less than this away has come, or the last wait would never end.
_SLACK_S = 1e-6


class Epochs(Struct, frozen=True, gc=False, tag="epochs"):
    """A limit counted in epochs."""

    count: int  # epochs; at least 1

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and 1 <= self.count <= MAX_EPOCHS):
            raise ValueError(f"a limit in epochs must be {_EPOCHS_RULE}, not {self.count!r}")

    def __str__(self) -> str:
        return "1 epoch" if self.count == 1 else f"{self.count} epochs"


class Steps(Struct, frozen=True, gc=False, tag="steps"):
    """A limit counted in steps, as the job counts them."""

    count: int  # steps; at least 1

    def __post_init__(self) -> None:
        if not (isinstance(self.count, int) and 1 <= self.count <= MAX_EPOCHS):
            raise ValueError(f"a limit in steps must be {_STEPS_RULE}, not {self.count!r}")

    def __str__(self) -> str:
        return "1 step" if self.count == 1 else f"{self.count} steps"


class Duration(Struct, frozen=True, gc=False, tag="duration"):
    """A limit in seconds: of running time after `for`, from submission on after `within`."""

    time_s: float  # seconds; finite and above 0

    def __post_init__(self) -> None:
        if not 0 < self.time_s < inf:
            raise ValueError(f"a limit in time must be finite and above 0 s, not {self.time_s!r}")

    def __str__(self) -> str:
        """The largest unit that gives a whole number, so that reading it back is exact; else seconds."""
        for unit, unit_s in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
            # Beyond 2**53 floats no longer print as the whole numbers they are.
            if self.time_s % unit_s == 0 and self.time_s < 2**53:
                return f"{_number(self.time_s / unit_s)}{unit}"
        return f"{_number(self.time_s)}s"


Limit: TypeAlias = Epochs | Steps | Duration


class Goal(Struct, frozen=True, gc=False, tag="goal"):
    """Done when the metric's latest value is good enough."""

    metric: str  # name of the metric, as the job reports it
    relation: Relation  # ">=": larger is better; "<=": smaller is
    target: float  # the value to reach; finite, 0.95 for 95%
    deadline: Limit | None = None  # by when it must be met; None: it may take any time
    percent: bool = False  # written, and so printed, as a percentage; the target means the same

    def __post_init__(self) -> None:
        _check_metric(self.metric)
        if self.relation not in (">=", "<="):
            raise ValueError(f"goal for {self.metric!r}: the relation must be '>=' or '<=', not {self.relation!r}")
        if not isfinite(self.target):
            raise ValueError(f"goal for {self.metric!r}: the target must be finite, not {self.target!r}")

    def met_by(self, value: float) -> bool:
        """Whether this `value` is good enough; NaN and the infinities, signs of divergence, never are."""
        return isfinite(value) and (value >= self.target if self.relation == ">=" else value <= self.target)

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {_value(self.target, self.percent)}{_within(self.deadline)}"


class Convergence(Struct, frozen=True, gc=False, tag="convergence"):
    """Done when the metric changes by less than this from one epoch to the next, or of a job without epochs, from one
    report to the next."""

    metric: str  # name of the metric, as the job reports it
    change: float  # that change; finite and above 0, 0.001 for 0.1%
    deadline: Limit | None = None  # by when it must be met; None: it may take any time
    percent: bool = False  # written, and so printed, as a percentage; the change means the same

    def __post_init__(self) -> None:
        _check_metric(self.metric)
        if not 0 < self.change < inf:
            raise ValueError(
                f"convergence of {self.metric!r}: the change must be finite and above 0, not {self.change!r}"
            )

    def met_by(self, previous: float, value: float) -> bool:
        """Whether `previous` and `value`, of epochs or reports in a row, are close; never if one is not finite."""
        return abs(value - previous) < self.change

    def __str__(self) -> str:
        return f"{self.metric} changes < {_value(self.change, self.percent)}{_within(self.deadline)}"


class RunTime(Struct, frozen=True, gc=False, tag="run-time"):
    """Done when it has run this long."""

    limit: Limit  # epochs, steps, or seconds of running

    def __str__(self) -> str:
        return f"for {self.limit}"


# When a job is done: `parse` reads one from a text such as `acc >= 95% within 1h`.
Criterion: TypeAlias = Goal | Convergence | RunTime


class CriterionError(ValueError):
    """A text that is no criterion: where it goes wrong and what was expected there."""

    def __init__(self, text: str, position: int, expected: str) -> None:
        super().__init__(text, position, expected)
        self.text = text
        self.position = position  # 0-based; len(text) at the end
        self.expected = expected

    def __str__(self) -> str:
        rest = self.text[self.position :].rstrip()
        found = repr(_shortened(rest, 24)) if rest else "the end"
        where = f"criterion {_shortened(self.text, 80)!r}: at column {self.position + 1}"
        return f"{where} expected {self.expected}, found {found}"


def limit_of(criterion: Criterion) -> Limit | None:
    """The deadline or run time, if it has one."""
    return criterion.limit if isinstance(criterion, RunTime) else criterion.deadline


class Seen(NamedTuple):
    """One reported value of a metric."""

    epoch: int  # epochs done when it was reported
    value: float
    step: int = 0  # the step that it was reported at; 0 if the job named none


# A value that belongs to no step may be a plain pair.
History: TypeAlias = Sequence[Seen | tuple[int, float]]


def judge(criterion: Criterion, history: History, epochs_done: int, elapsed_s: float, steps_done: int = 0) -> Outcome:
    """Where a job stands that has reported these values, oldest first.

    `elapsed_s` is what its limit counts: the time since its submission for a deadline, the time it ran for a run time.
    An epoch is numbered by how many are done at its end, so the first is 1; of several values for one epoch
    the last counts. Fold a report before judging, and judge on every one: values carry no time, so one
    first judged after a time deadline came too late. A job counts steps as it likes: step 100 is 100 steps done.
    """
    limit = limit_of(criterion)
    reached = _reached(limit, epochs_done, steps_done, elapsed_s)
    if isinstance(criterion, RunTime):
        return "attained" if reached else "open"
    if history and _in_time(limit, history[-1], elapsed_s) and _met(criterion, history):
        return "attained"
    return "missed" if reached else "open"


def decided_after_s(criterion: Criterion, elapsed_s: float) -> float | None:
    """How many more seconds, counted as `elapsed_s` is, decide it at the latest; None if time alone never does."""
    limit = limit_of(criterion)
    return max(0.0, limit.time_s - elapsed_s) if isinstance(limit, Duration) else None


def parse(text: str) -> Criterion:
    """The criterion that this text states; `parse(str(c)) == c`. Raises CriterionError."""
    if len(text) > MAX_TEXT:
        raise CriterionError(text, MAX_TEXT, f"the end (at most {MAX_TEXT} characters)")
    return _Parser(text).criterion()


def _met(criterion: Goal | Convergence, history: History) -> bool:
    last_epoch, last = history[-1][:2]
    match criterion:
        case Goal():
            return criterion.met_by(last)
        case Convergence():
            if last_epoch == 0:
                return _has_settled(criterion, history)
            for seen in reversed(history):
                if seen[0] < last_epoch:
                    return seen[0] == last_epoch - 1 and criterion.met_by(seen[1], last)
            return False
        case _:
            assert_never(criterion)


def _has_settled(criterion: Convergence, history: History) -> bool:
    """Whether a job without epochs reported nearly the same at its last two steps."""
    last_step = _step(history[-1])
    for seen in reversed(history):
        if _step(seen) < last_step:
            return criterion.met_by(seen[1], history[-1][1])
    return False


def _step(seen: Seen | tuple[int, float]) -> int:
    return seen.step if isinstance(seen, Seen) else 0


def _reached(limit: Limit | None, epochs_done: int, steps_done: int, elapsed_s: float) -> bool:
    match limit:
        case None:
            return False
        case Epochs(count=count):
            return epochs_done >= count
        case Steps(count=count):
            return steps_done >= count
        case Duration(time_s=time_s):
            return elapsed_s >= time_s - _SLACK_S
        case _:
            assert_never(limit)


def _in_time(deadline: Limit | None, seen: Seen | tuple[int, float], elapsed_s: float) -> bool:
    match deadline:
        case None:
            return True
        case Epochs(count=count):
            return seen[0] <= count
        case Steps(count=count):
            return _step(seen) <= count
        case Duration(time_s=time_s):
            return elapsed_s <= time_s + _SLACK_S
        case _:
            assert_never(deadline)


# Printing


def _number(value: float, factor: Decimal = Decimal(1)) -> str:
    """The shortest decimal that reads back as this float, times the factor."""
    exact = _DECIMAL.normalize(_DECIMAL.multiply(Decimal(repr(float(value))), factor))
    return f"{exact:f}" if -6 < exact.adjusted() < 16 else f"{exact}".lower()


def _value(value: float, percent: bool) -> str:
    return f"{_number(value, Decimal(100))}%" if percent else _number(value)


def _within(deadline: Limit | None) -> str:
    return "" if deadline is None else f" within {deadline}"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


# Reading


def _is_metric(name: str) -> bool:
    return len(name) <= MAX_METRIC and re.fullmatch(_METRIC, name) is not None and name.lower() not in RESERVED


def _check_metric(name: str) -> None:
    if not _is_metric(name):
        raise ValueError(f"metric {_shortened(name, MAX_METRIC)!r} must be {_METRIC_RULE} and no reserved word")


class _Token(NamedTuple):
    kind: str  # number, word, mark, other or end
    text: str
    position: int

    @property
    def keyword(self) -> str:
        return self.text.lower()


_TOKEN = re.compile(
    rf"""(?P<number>[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
      | (?P<word>{_METRIC})
      | (?P<mark>>=|<=|<|%)
      | (?P<other>\S)""",
    re.VERBOSE,
)
_RELATIONS: dict[str, Relation] = {">=": ">=", "min": ">=", "<=": "<=", "max": "<="}
_UNITS_S = {
    word: Decimal(unit_s)
    for words, unit_s in (
        ("s sec secs second seconds", 1),
        ("m min mins minute minutes", 60),
        ("h hr hrs hour hours", 3600),
        ("d day days", 86400),
    )
    for word in words.split()
}


class _Parser:
    """Recursive descent: one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [_Token(m.lastgroup or "", m.group(), m.start()) for m in _TOKEN.finditer(text)]
        self.tokens.append(_Token("end", "", len(text)))
        self.at = 0

    def criterion(self) -> Criterion:
        found: Criterion = RunTime(self.limit()) if self.accept("for") else self.measured()
        if self.tokens[self.at].kind != "end":
            # What went before may still have taken a deadline: say so.
            self.fail(self.tokens[self.at], "the end" if limit_of(found) else "'within' or the end")
        return found

    def measured(self) -> Goal | Convergence:
        name = self.take()
        if name.kind != "word" or not _is_metric(name.text):
            self.fail(name, f"'for' or {_METRIC_RULE}")
        verb = self.take()
        is_template = verb.keyword in ("min", "max", "delta")
        metric = name.text.lower() if is_template and name.text.isupper() else name.text
        if relation := _RELATIONS.get(verb.keyword):
            target, percent = self.value("a finite number or percentage", above=-inf)
            return Goal(metric, relation, target, self.deadline(), percent)
        if verb.keyword == "changes":
            self.expect("<")
        elif verb.keyword != "delta":
            self.fail(verb, "'>=', '<=' or 'changes <'")
        change, percent = self.value("a finite number or percentage above 0", above=0)
        return Convergence(metric, change, self.deadline(), percent)

    def value(self, expected: str, above: float) -> tuple[float, bool]:
        number = self.number(expected)
        percent = self.accept("%")
        value = _scaled(number.text, Decimal("0.01") if percent else Decimal(1))
        if not above < value < inf:
            self.fail(number, expected)
        return value, percent

    def deadline(self) -> Limit | None:
        return self.limit() if self.accept("within") else None

    def limit(self) -> Limit:
        number = self.number("a limit such as '2h' or '30 epochs'")
        unit = self.take()
        if unit.keyword in ("epoch", "epochs", "step", "steps"):
            is_steps = unit.keyword.startswith("step")
            if not (number.text.isdigit() and 1 <= int(number.text) <= MAX_EPOCHS):
                self.fail(number, _STEPS_RULE if is_steps else _EPOCHS_RULE)
            return Steps(int(number.text)) if is_steps else Epochs(int(number.text))
        if unit.keyword not in _UNITS_S:
            self.fail(unit, "a unit: epochs, steps, s, m, h or d")
        time_s = _scaled(number.text, _UNITS_S[unit.keyword])
        if not 0 < time_s < inf:
            self.fail(number, "a finite time above 0")
        return Duration(time_s)

    def number(self, expected: str) -> _Token:
        token = self.take()
        if token.kind != "number":
            self.fail(token, expected)
        return token

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, keyword: str) -> bool:
        found = self.tokens[self.at].keyword == keyword
        self.at += found
        return found

    def expect(self, keyword: str) -> None:
        if not self.accept(keyword):
            self.fail(self.tokens[self.at], f"'{keyword}'")

    def fail(self, token: _Token, expected: str) -> NoReturn:
        raise CriterionError(self.text, token.position, expected)


def _scaled(number: str, factor: Decimal) -> float:
    return float(_DECIMAL.multiply(_DECIMAL.create_decimal(number), factor))
