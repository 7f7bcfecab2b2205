"""Readers of training data: what they read, and errors that name file, line and field."""

import gzip
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hocket.runtimes.paramserver.algorithm import TrainingError
from hocket.runtimes.paramserver.applications import mlr
from hocket.runtimes.paramserver.number_scanner import scan_numbers
from hocket.runtimes.paramserver.readers import read_bags_of_words, read_ratings, read_svmlight


def written(folder: Path, text: str) -> Path:
    path = folder / "data.txt"
    path.write_text(text)
    return path


def test_numbers_are_read_as_python_reads_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    exact = ["0", "-0.0", "7", "+3.5", "1e3", "2E-4", ".5", "4.", "123456789012345", "0.1", "1e22", "-1.25e-7"]
    long = [repr(float(x)) for x in rng.normal(size=200) * 10.0 ** rng.integers(-200, 200, 200)]
    long += ["1" * 40, "0." + "3" * 40, "1e-310", "123456789012345678901234567890e-10"]
    found = scan_numbers(written(tmp_path, "\n".join(exact + long))).values
    assert found[: len(exact)].tolist() == [float(text) for text in exact]
    np.testing.assert_allclose(found, [float(text) for text in exact + long], rtol=1e-15)


def test_ratings_are_read_with_and_without_a_time(tmp_path: Path) -> None:
    path = written(tmp_path, "# user item rating\n1 10 3.5\n\n2,20,4\r\n1\t20\t0.5  # late")
    found = read_ratings(path)
    assert (found.users.tolist(), found.items.tolist(), found.values.tolist()) == (
        [1, 2, 1],
        [10, 20, 20],
        [3.5, 4, 0.5],
    )
    assert read_ratings(written(tmp_path, "1 2 3 881250949\n4 5 1 891717742\n")).items.tolist() == [2, 5]
    zipped = tmp_path / "ratings.gz"
    zipped.write_bytes(gzip.compress(b"1 2 3\n"))
    assert read_ratings(zipped).users.tolist() == [1]


def test_svmlight_is_read_as_scikit_learn_reads_it(tmp_path: Path) -> None:
    from sklearn.datasets import load_svmlight_file  # not above: to load it takes seconds

    path = written(tmp_path, "1 1:0.5 3:-2 # two\n0\n2.5 2:1e-3\n")
    theirs, labels = load_svmlight_file(str(path))
    found = read_svmlight(path)
    assert found.labels.tolist() == labels.tolist()
    assert (found.starts.tolist(), found.indices.tolist()) == (theirs.indptr.tolist(), theirs.indices.tolist())
    assert found.values.tolist() == theirs.data.tolist()
    assert found.lines.tolist() == [1, 2, 3]
    assert read_svmlight(written(tmp_path, "1 0:2 1:3\n"), zero_based=True).indices.tolist() == [0, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from(("1", "2.5", "1:2", "2:0.5", "4:1", "0:1", "1.5:2")))), st.booleans())
def test_svmlight_is_read_as_it_is_defined_or_refused(tmp_path: Path, lines: list[list[str]], zero_based: bool) -> None:
    path = written(tmp_path, "".join(" ".join(line) + "\n" for line in lines))
    least, rows = 0 if zero_based else 1, [line for line in lines if line]
    pairs = [[tuple(map(float, field.split(":"))) for field in row[1:]] for row in rows]
    are_rows = bool(rows) and all(":" not in row[0] for row in rows) and all(len(p) == 2 for row in pairs for p in row)
    if are_rows:
        indices = [[pair[0] for pair in row] for row in pairs]
        are_rows = all(i.is_integer() and i >= least for row in indices for i in row)
        are_rows = are_rows and all(row == sorted(set(row)) for row in indices)
    if not are_rows:
        with pytest.raises(TrainingError):
            read_svmlight(path, zero_based)
        return
    found = read_svmlight(path, zero_based)
    assert found.labels.tolist() == [float(row[0]) for row in rows]
    assert found.starts.tolist() == list(accumulate(map(len, pairs), initial=0))
    assert found.indices.tolist() == [pair[0] - least for row in pairs for pair in row]
    assert found.values.tolist() == [pair[1] for row in pairs for pair in row]


def test_bags_of_words_are_sorted_by_document(tmp_path: Path) -> None:
    found = read_bags_of_words(written(tmp_path, "2\n5\n3\n2 5 1\n1 2 3\n1 1 2\n"))
    assert (found.documents, found.words) == (2, 5)
    assert found.document.tolist() == [0, 0, 1]
    assert found.word.tolist() == [1, 0, 4]
    assert found.counts.tolist() == [3, 2, 1]


def read_labels(path: Path) -> Any:
    return mlr.load(path, 2, 2, classes=3)


@pytest.mark.parametrize(
    ("reader", "text", "why"),
    [
        (read_ratings, "1 2 3\n1 x 3\n", "line 2, field 2: 'x' is not a number"),
        (read_ratings, "1 2 3\n1 2 3e\n", "line 2, field 3: '3e' is not a number"),
        (read_ratings, "1 2 3\n1 2 -\n", "line 2, field 3: '-' is not a number"),
        (read_ratings, "1 2 3\n\n1 2 nan\n", "line 3, field 3: 'nan' is not a finite number"),
        (read_ratings, "1 2 inf\n", "line 1, field 3: 'inf' is not a finite number"),
        (read_ratings, "1 2 1e999\n", "line 1, field 3: '1e999' is not a finite number"),
        (read_ratings, "1 2 123456789012e299\n", "line 1, field 3: '123456789012e299' is not a finite number"),
        (read_ratings, "1 2 3\n1 2 3\u00a0\n", "line 2, field 3: '3\u00a0' is not a number"),
        (read_ratings, "1 2 3\n1\v2 3\n", "line 2, field 1: '1\v2' is not a number"),
        (read_ratings, "1 2 3\n\f\n", "line 2, field 1: '\f' is not a number"),
        (read_ratings, "1 2 3\n1 2_0 3\n", "line 2, field 2: '2_0' is not a number"),
        (read_svmlight, "1 1:123456789012e299\n", "line 1, field 3: '123456789012e299' is not a finite number"),
        (read_ratings, "1 2 3\n1 2\n", "line 2: it has 2 fields; the lines before it have 3"),
        (read_ratings, "1 2 3\n1 2 3 4\n", "line 2: it has 4 fields; the lines before it have 3"),
        (read_ratings, "1 2\n", "line 1: it has 2 fields; it must have 3: user, item, rating"),
        (read_ratings, "1.5 2 3\n", "line 1, field 1: '1.5' is not a whole number within 0 and"),
        (read_ratings, "1 2 3\n1 -2 3\n", "line 2, field 2: '-2' is not a whole number within 0 and"),
        (read_ratings, "1 2 3\n1 2 -3\n", "line 2, field 3: '-3' is below 0"),
        (read_ratings, "1 2 1e39\n", "line 1, field 3: '1e39' is too large"),
        (read_ratings, "1 2:3\n", "line 1, field 3: '3' follows a colon"),
        (read_ratings, "# nothing\n", "it has no ratings"),
        (read_svmlight, "1 1:2\n1 1:2 2\n", "line 2, field 4: '2' is an index without a value"),
        (read_svmlight, "1 1:2 3 4:5\n", "line 1, field 5: '4' is not part of a pair"),
        (read_svmlight, "1:2 3:4\n", "line 1, field 2: '2' is not part of a pair"),
        (read_svmlight, "1 2:3 2:4\n", "line 1, field 4: '2' is not larger than the index before it"),
        (read_svmlight, "1 0:3\n", "line 1, field 2: '0' is not a feature's index, which is counted from 1"),
        (read_svmlight, "1 1.5:3\n", "line 1, field 2: '1.5' is not a feature's index"),
        (read_svmlight, "1 qid:3 1:2\n", "line 1, field 2: 'qid' is not a number"),
        (read_svmlight, "1 1:2 2:nan\n", "line 1, field 5: 'nan' is not a finite number"),
        (read_svmlight, "", "it has no rows"),
        (read_labels, "0 1:2\n3 1:2\n", "line 2, field 1: label 3 is not a whole number within 0 and 2"),
        (read_labels, "0 1:2\n-1 1:2\n", "line 2, field 1: label -1 is not"),
        (read_labels, "0.5 1:2\n", "line 1, field 1: label 0.5 is not"),
        (read_bags_of_words, "2 5\n3\n1 1 1\n", "line 1: it must begin with three lines"),
        (read_bags_of_words, "0\n5\n0\n", "line 1, field 1: '0' is not a number of documents"),
        (read_bags_of_words, "2\n5\n2\n1 1 1\n", "line 3: it has 1 entries, not 2"),
        (read_bags_of_words, "2\n5\n1\n3 1 1\n", "line 4, field 1: '3' is not a whole number within 1 and 2"),
        (read_bags_of_words, "2\n5\n1\n1 6 1\n", "line 4, field 2: '6' is not a whole number within 1 and 5"),
        (read_bags_of_words, "2\n5\n1\n1 1 0\n", "line 4, field 3: '0' is not a whole number within 1 and"),
        (read_bags_of_words, "2\n5\n2\n1 1 1\n1 2\n", "line 5: it has 2 fields"),
        (read_bags_of_words, "2\n5\n0\n", "it has no words"),
    ],
)
def test_what_cannot_be_read_is_named_by_file_line_and_field(
    reader: Callable[[Path], Any], text: str, why: str, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(TrainingError) as error:
        reader(path)
    assert f"{path}" in str(error.value)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing: No such file or directory"):
        read_ratings(tmp_path / "nothing")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"no gzip")
    with pytest.raises(TrainingError, match=r"broken\.gz: Not a gzipped file"):
        read_ratings(broken)
