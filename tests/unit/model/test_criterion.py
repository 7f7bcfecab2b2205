"""The grammar of criteria, what it refuses, and how a criterion is judged."""

from __future__ import annotations

import math
import pickle

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hocket.model.criterion import (
    MAX_EPOCHS,
    MAX_METRIC,
    MAX_TEXT,
    RESERVED,
    Convergence,
    Criterion,
    CriterionError,
    Duration,
    Epochs,
    Goal,
    RunTime,
    Seen,
    Steps,
    decided_after_s,
    judge,
    limit_of,
    parse,
)

FORMS = [
    # ours
    ("acc >= 95% within 3600s", Goal("acc", ">=", 0.95, Duration(3600), True), "acc >= 95% within 1h"),
    ("acc >= 95%", Goal("acc", ">=", 0.95, None, True), "acc >= 95%"),
    ("acc>=0.95", Goal("acc", ">=", 0.95), "acc >= 0.95"),
    ("loss <= 0.2 within 30 epochs", Goal("loss", "<=", 0.2, Epochs(30)), "loss <= 0.2 within 30 epochs"),
    (
        "rel_error <= 1% within 1m",
        Goal("rel_error", "<=", 0.01, Duration(60), True),
        "rel_error <= 1% within 1m",
    ),
    ("reward >= -200", Goal("reward", ">=", -200.0), "reward >= -200"),
    ("loss <= .5e-3", Goal("loss", "<=", 0.0005), "loss <= 0.0005"),
    ("top5/acc >= 57.9 %", Goal("top5/acc", ">=", 0.579, None, True), "top5/acc >= 57.9%"),
    ("mAP@0.5 >= 0.4 WITHIN 1 epoch", Goal("mAP@0.5", ">=", 0.4, Epochs(1)), "mAP@0.5 >= 0.4 within 1 epoch"),
    ("BLEU >= 30", Goal("BLEU", ">=", 30.0), "BLEU >= 30"),
    ("d <= 5", Goal("d", "<=", 5.0), "d <= 5"),
    (
        "acc changes < 0.001 within 30 epochs",
        Convergence("acc", 0.001, Epochs(30)),
        "acc changes < 0.001 within 30 epochs",
    ),
    ("val-loss changes <0.1%", Convergence("val-loss", 0.001, None, True), "val-loss changes < 0.1%"),
    ("for 2h", RunTime(Duration(7200)), "for 2h"),
    ("for 30 epochs", RunTime(Epochs(30)), "for 30 epochs"),
    ("for 3000 steps", RunTime(Steps(3000)), "for 3000 steps"),
    ("loss <= 0.01 within 5000 Steps", Goal("loss", "<=", 0.01, Steps(5000)), "loss <= 0.01 within 5000 steps"),
    ("step >= 7 within 1 step", Goal("step", ">=", 7, Steps(1)), "step >= 7 within 1 step"),
    ("  for\n2 days ", RunTime(Duration(172800)), "for 2d"),
    # the papers'
    (
        "ACC MIN 95% WITHIN 3600 SECONDS",
        Goal("acc", ">=", 0.95, Duration(3600), True),
        "acc >= 95% within 1h",
    ),
    ("LOSS MAX 0.2 WITHIN 30 EPOCHS", Goal("loss", "<=", 0.2, Epochs(30)), "loss <= 0.2 within 30 epochs"),
    (
        "ACC DELTA 0.001 WITHIN 30 EPOCHS",
        Convergence("acc", 0.001, Epochs(30)),
        "acc changes < 0.001 within 30 epochs",
    ),
    ("FOR 2 HOURS", RunTime(Duration(7200)), "for 2h"),
    ("F1 min 0.9", Goal("f1", ">=", 0.9), "f1 >= 0.9"),
    ("mAP MIN 40%", Goal("mAP", ">=", 0.4, None, True), "mAP >= 40%"),
]


@pytest.mark.parametrize(("text", "criterion", "canonical"), FORMS)
def test_a_form_parses_to_its_value_and_prints_canonically(text: str, criterion: Criterion, canonical: str):
    assert parse(text) == criterion
    assert str(criterion) == canonical
    assert parse(canonical) == criterion


@pytest.mark.parametrize(
    ("written", "time_s", "printed"),
    [
        ("3600s", 3600, "1h"),
        ("1.5h", 5400, "90m"),
        ("1.1h", 3960, "66m"),
        ("90s", 90, "90s"),
        ("90 sec", 90, "90s"),
        ("0.5 minutes", 30, "30s"),
        ("1 min", 60, "1m"),
        ("24 hours", 86400, "1d"),
        ("36h", 129600, "36h"),
        ("0.1s", 0.1, "0.1s"),
        ("1e5S", 1e5, "100000s"),
        ("1 Day", 86400, "1d"),
    ],
)
def test_a_time_is_exact_and_prints_in_the_largest_whole_unit(written: str, time_s: float, printed: str):
    assert parse(f"for {written}") == RunTime(Duration(time_s))
    assert str(Duration(time_s)) == printed


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "'for' or a metric"),
        ("   ", 3, "'for' or a metric"),
        ("5 >= 3", 0, "'for' or a metric"),
        (".acc >= 3", 0, "'for' or a metric"),
        ("within >= 3", 0, "'for' or a metric"),
        ("Max MAX 3", 0, "'for' or a metric"),
        ("acc", 3, "'>=', '<=' or 'changes <'"),
        ("acc >> 95%", 4, "'>=', '<=' or 'changes <'"),
        ("acc < 95%", 4, "'>=', '<=' or 'changes <'"),
        ("acc. >= 1", 3, "'>=', '<=' or 'changes <'"),
        ("acc changes 0.1", 12, "'<'"),
        ("acc changes <= 0.1", 12, "'<'"),
        ("acc changes < -0.1", 14, "above 0"),
        ("acc changes < 0", 14, "above 0"),
        ("acc changes < 1e-400", 14, "above 0"),
        ("acc >= ", 7, "a finite number"),
        ("acc >= %", 7, "a finite number"),
        ("acc >= lots%", 7, "a finite number"),
        ("acc >= nan", 7, "a finite number"),
        ("acc >= inf", 7, "a finite number"),
        ("acc >= 1e400", 7, "a finite number"),
        ("acc >= 1e99999999999999999999%", 7, "a finite number"),
        ("acc >= 95%%", 10, "'within' or the end"),
        ("acc >= 95% in 3s", 11, "'within' or the end"),
        ("acc >= 95% within", 17, "a limit such as"),
        ("acc >= 95% within soon", 18, "a limit such as"),
        ("acc >= 95% within 3", 19, "a unit"),
        ("acc >= 95% within 3 weeks", 20, "a unit"),
        ("acc >= 95% within 3s within 4s", 21, "the end"),
        ("for 0s", 4, "a finite time above 0"),
        ("for -2h", 4, "a finite time above 0"),
        ("for 1e999h", 4, "a finite time above 0"),
        ("for 0 epochs", 4, "a whole number of epochs"),
        ("for 1.5 epochs", 4, "a whole number of epochs"),
        (f"for {MAX_EPOCHS + 1} epochs", 4, "a whole number of epochs"),
        ("for 2h or so", 7, "the end"),
        ("for >= 3", 4, "a limit such as"),
        ("a" * (MAX_METRIC + 1) + " >= 3", 0, "'for' or a metric"),
        ("acc >= 3" + " " * MAX_TEXT, MAX_TEXT, "the end"),
        ("précision >= 3", 2, "'>=', '<=' or 'changes <'"),
    ],
)
def test_a_bad_text_is_refused_where_it_goes_wrong(text: str, position: int, expected: str):
    with pytest.raises(CriterionError) as caught:
        parse(text)
    error = caught.value
    assert (error.text, error.position) == (text, position)
    assert expected in error.expected
    assert f"at column {position + 1} expected {error.expected}, found " in str(error)


def test_an_error_says_the_text_the_column_and_what_was_found_in_one_line():
    with pytest.raises(CriterionError) as caught:
        parse("acc >> 95%")
    message = "criterion 'acc >> 95%': at column 5 expected '>=', '<=' or 'changes <', found '>> 95%'"
    assert str(caught.value) == message
    with pytest.raises(CriterionError, match=r"'acc\\n': at column 5 expected .*, found the end$"):
        parse("acc\n")


def test_an_error_survives_pickling():
    error = pickle.loads(pickle.dumps(CriterionError("acc", 3, "'>='")))
    assert (error.text, error.position, error.expected) == ("acc", 3, "'>='")


@pytest.mark.parametrize("word", sorted(RESERVED))
def test_a_word_of_the_grammar_is_no_metric_in_any_case(word: str):
    for name in (word, word.upper(), word.title()):
        with pytest.raises(CriterionError):
            parse(f"{name} >= 3")
        with pytest.raises(ValueError, match="reserved"):
            Goal(name, ">=", 3)
    assert parse(f"{word}_acc >= 3") == Goal(f"{word}_acc", ">=", 3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Goal("", ">=", 1),
        lambda: Goal("two words", ">=", 1),
        lambda: Goal("acc\n", ">=", 1),
        lambda: Goal("acc", ">", 1),  # type: ignore[arg-type]
        lambda: Goal("acc", ">=", math.nan),
        lambda: Goal("acc", ">=", math.inf),
        lambda: Convergence("acc", 0),
        lambda: Convergence("acc", math.nan),
        lambda: Convergence("-acc", 0.1),
        lambda: Epochs(0),
        lambda: Steps(0),
        lambda: Steps(10**13),
        lambda: Epochs(1.5),  # type: ignore[arg-type]
        lambda: Duration(0),
        lambda: Duration(-1),
        lambda: Duration(math.inf),
        lambda: Duration(math.nan),
    ],
)
def test_a_value_that_no_text_can_state_is_not_constructible(build):
    with pytest.raises(ValueError, match="must be"):
        build()


# Judging


def test_a_goal_is_attained_by_the_latest_value_only():
    goal = parse("acc >= 95%")
    assert judge(goal, [], 0, 0) == "open"
    assert judge(goal, [(1, 0.9), (2, 0.95)], 2, 10) == "attained"
    assert judge(goal, [(1, 0.96), (2, 0.94)], 2, 10) == "open"
    assert judge(parse("loss <= 0.2"), [(1, 0.2)], 1, 10) == "attained"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_never_attains(value: float):
    for text in ("acc >= -5", "acc <= 5", "acc changes < 5"):
        assert judge(parse(text), [(1, value), (2, value)], 2, 10) == "open"
        assert judge(parse(f"{text} within 2 epochs"), [(1, value), (2, value)], 2, 10) == "missed"
    assert judge(parse("acc changes < 5"), [(1, value), (2, 1.0)], 2, 10) == "open"


def test_a_goal_is_missed_once_its_epochs_are_done():
    goal = parse("acc >= 95% within 3 epochs")
    assert judge(goal, [(2, 0.9)], 2, 1e9) == "open"
    assert judge(goal, [(3, 0.95)], 3, 1e9) == "attained"
    assert judge(goal, [(3, 0.9)], 3, 1e9) == "missed"
    assert judge(goal, [(3, 0.9), (4, 0.99)], 4, 1e9) == "missed"
    assert judge(goal, [], 3, 0) == "missed"


def test_a_goal_is_missed_once_its_time_is_over():
    goal = parse("acc >= 95% within 1m")
    assert judge(goal, [(1, 0.9)], 1, 59.9) == "open"
    assert judge(goal, [(1, 0.95)], 1, 60.0) == "attained"
    assert judge(goal, [(1, 0.9)], 1, 60.0) == "missed"
    assert judge(goal, [(1, 0.95)], 1, 60.1) == "missed"


def test_convergence_compares_two_consecutive_epochs():
    criterion = parse("acc changes < 0.25 within 30 epochs")
    assert judge(criterion, [(1, 0.5)], 1, 0) == "open"
    assert judge(criterion, [(1, 0.5), (2, 0.625)], 2, 0) == "attained"
    assert judge(criterion, [(1, 0.5), (2, 0.375)], 2, 0) == "attained"
    assert judge(criterion, [(1, 0.5), (2, 0.75)], 2, 0) == "open", "equal is not below"
    assert judge(criterion, [(1, 0.5), (3, 0.5)], 3, 0) == "open", "epoch 2 is missing"
    assert judge(criterion, [(2, 0.5), (2, 0.5)], 2, 0) == "open", "two values of one epoch"
    assert judge(criterion, [(1, 0.0), (1, 0.5), (2, 9.0), (2, 0.5)], 2, 0) == "attained", "last of each"
    assert judge(criterion, [(29, 0.1), (30, 0.9)], 30, 0) == "missed"


def test_a_run_time_is_attained_when_reached_and_never_missed():
    assert judge(parse("for 2h"), [], 0, 7199) == "open"
    assert judge(parse("for 2h"), [], 0, 7200) == "attained"
    assert judge(parse("for 2h"), [], 0, 1e9) == "attained"
    assert judge(parse("for 3 epochs"), [], 2, 1e9) == "open"
    assert judge(parse("for 3 epochs"), [(3, math.nan)], 3, 0) == "attained"


def test_time_alone_decides_only_what_has_a_time_limit():
    assert decided_after_s(parse("for 2h"), 7000) == 200
    assert decided_after_s(parse("acc >= 1 within 1m"), 70) == 0
    assert decided_after_s(parse("acc changes < 1 within 1m"), 0) == 60
    for text in ("acc >= 1", "acc >= 1 within 2 epochs", "for 2 epochs", "acc changes < 1"):
        assert decided_after_s(parse(text), 10) is None


# Properties

metrics = st.from_regex(r"[A-Za-z_]([A-Za-z0-9_./@-]{0,98}[A-Za-z0-9_])?", fullmatch=True).filter(
    lambda name: name.lower() not in RESERVED
)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
limits = st.one_of(
    st.builds(Epochs, st.integers(1, MAX_EPOCHS)),
    st.builds(Steps, st.integers(1, MAX_EPOCHS)),
    st.builds(Duration, positive),
    st.builds(Duration, st.integers(1, 10**308).map(float)),
    st.builds(Duration, st.integers(1, 10**7).map(float)),
)
deadlines = st.none() | limits
criteria = st.one_of(
    st.builds(Goal, metrics, st.sampled_from([">=", "<="]), finite, deadlines, st.booleans()),
    st.builds(Convergence, metrics, positive, deadlines, st.booleans()),
    st.builds(RunTime, limits),
)
KEYWORDS = ["for", "min", "MAX", "delta", "changes", "within", "epochs", "s", "h", "days"]
PIECES = [
    *KEYWORDS,
    ">=",
    "<=",
    "<",
    "%",
    "1",
    ".5",
    "-",
    "e",
    "9" * 50,
    "acc",
    "ACC",
    "@",
    "é",
    "٣",
    " ",
    "\n",
    "\0",
]
texts = st.text() | st.builds(str.join, st.sampled_from(["", " "]), st.lists(st.sampled_from(PIECES)))


def read(text: str) -> Criterion | CriterionError:
    """What the parser makes of any text; other errors escape."""
    try:
        return parse(text)
    except CriterionError as error:
        return error


@given(criteria)
@example(RunTime(Duration(3.402823466e38)))  # a whole number of minutes whose shortest decimal is not
def test_what_is_printed_parses_to_the_same_value(criterion: Criterion):
    assert len(str(criterion)) <= MAX_TEXT
    assert parse(str(criterion)) == criterion
    assert str(parse(str(criterion))) == str(criterion)


@given(criteria)
def test_a_criterion_survives_json(criterion: Criterion):
    assert msgspec.json.decode(msgspec.json.encode(criterion), type=Criterion) == criterion


@given(texts)
@example("acc >= 1e" + "9" * 380)
@example("for " + "9" * 390 + "epochs")
@example("for 1." + "0" * 380 + "1d")
def test_any_text_parses_to_a_fixed_point_or_is_refused_inside_itself(text: str):
    found = read(text)
    if isinstance(found, CriterionError):
        assert 0 <= found.position <= len(text)
        assert len(str(found).splitlines()) == 1
    else:
        assert parse(str(found)) == found
        assert str(parse(str(found))) == str(found)


@given(st.sampled_from([text for text, _, _ in FORMS]), st.data())
def test_a_damaged_criterion_is_read_or_refused_inside_itself(text: str, data: st.DataObject):
    at = data.draw(st.integers(0, len(text)))
    damaged = text[:at] + data.draw(st.sampled_from(PIECES)) + text[at + data.draw(st.integers(0, 3)) :]
    found = read(damaged)
    if isinstance(found, CriterionError):
        assert 0 <= found.position <= len(damaged)
    else:
        assert parse(str(found)) == found


@given(criteria, st.floats(0, 1e9))
def test_once_the_time_is_over_nothing_stays_open(criterion: Criterion, elapsed_s: float):
    wait_s = decided_after_s(criterion, elapsed_s)
    if wait_s is None:
        assert not isinstance(limit_of(criterion), Duration)
    elif elapsed_s + wait_s < 1e9:
        assert judge(criterion, [], 0, elapsed_s + wait_s) != "open"


def test_a_limit_in_steps_is_counted_in_steps_alone():
    goal = parse("loss <= 0.1 within 500 steps")
    assert judge(goal, [Seen(0, 0.2, 250)], 0, 1e9, 250) == "open"
    assert judge(goal, [Seen(0, 0.1, 500)], 0, 1e9, 500) == "attained"
    assert judge(goal, [Seen(0, 0.2, 500)], 0, 1e9, 500) == "missed"
    assert judge(goal, [Seen(0, 0.1, 501)], 0, 1e9, 501) == "missed"
    assert judge(goal, [Seen(600, 0.2, 250)], 600, 1e9, 250) == "open", "epochs are none"
    assert judge(parse("for 3 steps"), [], 9, 1e9, 2) == "open"
    assert judge(parse("for 3 steps"), [], 0, 0, 3) == "attained"


def test_of_a_job_without_epochs_two_reports_in_a_row_are_compared():
    criterion = parse("loss changes < 0.125")
    assert judge(criterion, [Seen(0, 0.5, 10)], 0, 0, 10) == "open"
    assert judge(criterion, [Seen(0, 0.5, 10), Seen(0, 0.45, 20)], 0, 0, 20) == "attained"
    assert judge(criterion, [Seen(0, 0.5, 10), Seen(0, 0.9, 20)], 0, 0, 20) == "open"
    assert judge(criterion, [Seen(0, 0.9, 10), Seen(0, 0.5, 20), Seen(0, 0.5, 20)], 0, 0, 20) == "open", "of one step"
