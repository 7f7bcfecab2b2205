"""Files that grow: JSON lines and CSV."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.agent.progress.epoch_counter import EpochCounter
from hocket.agent.progress.follow import MOST_AT_ONCE, Followed, places
from hocket.agent.progress.json_lines import JsonLines
from hocket.agent.progress.reader import StepReport


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


# -- following ----------------------------------------------------------------------------------------------


def test_a_file_is_read_on_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = Followed(str(path))
    assert file.read() == (b"", False)
    append(path, "one")
    assert file.read() == (b"one", True)
    append(path, "two")
    assert file.read() == (b"two", False)
    assert file.read() == (b"", False)


def test_what_stood_there_before_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append(path, "old")
    file = Followed(str(path))
    assert file.head(2) == b"ol"
    assert file.read() == (b"", False)
    append(path, "new")
    assert file.read() == (b"new", False)


@pytest.mark.parametrize("atomically", [False, True])
def test_a_file_that_is_written_anew_with_more_at_its_end_is_read_on(tmp_path: Path, atomically: bool) -> None:
    """As `table.to_csv(...)` in each epoch does."""
    path, part = tmp_path / "log", tmp_path / "part"
    file = Followed(str(path))
    for text, added in (("1\n", b"1\n"), ("1\n2\n", b"2\n"), ("1\n2\n3\n", b"3\n")):
        (part if atomically else path).write_text(text)
        if atomically:
            part.rename(path)
        assert file.read()[0] == added


@pytest.mark.parametrize("other", ["b\n", "bbb\nbbb\nbbb\n"])
def test_another_file_in_its_place_is_read_from_its_beginning(tmp_path: Path, other: str) -> None:
    path = tmp_path / "log"
    path.write_text("aaa\n")
    file = Followed(str(path))
    path.write_text(other)
    assert file.read() == (other.encode(), True)


def test_a_long_file_comes_bit_by_bit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = Followed(str(path))
    text = os.urandom(MOST_AT_ONCE * 2 + 5)
    path.write_bytes(text)
    parts = [file.read()[0] for _ in range(4)]
    assert [len(part) for part in parts] == [MOST_AT_ONCE, MOST_AT_ONCE, 5, 0]
    assert b"".join(parts) == text


def test_what_is_no_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), str(tmp_path), "/dev/zero", "a\0b", str(tmp_path / "none" / "x")):
        file = Followed(path)
        assert file.head(10) == b""
        assert file.read() == (b"", False)


def test_a_path_may_stand_in_the_working_directory_or_in_the_checkpoint_folder() -> None:
    assert places("log.csv", "/cwd", "/ckpt") == ["/cwd/log.csv", "/ckpt/log.csv"]
    assert places("log.csv", "/cwd", "") == ["/cwd/log.csv"]
    assert places("/log.csv", "/cwd", "/ckpt") == ["/log.csv"]
    assert places("$HOCKET_CHECKPOINT_DIR/log.csv", "/cwd", "/ckpt") == ["/ckpt/log.csv"]


@given(st.lists(st.tuples(st.sampled_from(["append", "replace"]), st.binary(max_size=100)), max_size=8))
def test_what_is_only_appended_comes_out_whole(tmp_path_factory: Any, writes: list[tuple[str, bytes]]) -> None:
    path = tmp_path_factory.mktemp("files") / "log"
    file, found = Followed(str(path)), b""
    for how, data in writes:
        with path.open("ab" if how == "append" else "wb") as out:
            out.write(data)
        added, is_beginning = file.read()
        found = added if is_beginning else found + added
    if all(how == "append" for how, _data in writes):
        assert found == b"".join(data for _how, data in writes)


# -- JSON lines ---------------------------------------------------------------------------------------------


def test_objects_are_found_among_other_output(opened: Any) -> None:
    text = (
        b'start {1}\n{"epoch": 1, "loss": 0.5, "done": true, "note": "x"}\nINFO {"acc": 0.9, "epoch": 2}\n{"epoch": \n'
    )
    assert opened(kind="json").feed(text) == [(1, {"loss": 0.5}), (2, {"acc": 0.9})]


def test_nested_values_and_texts_with_numbers_count(opened: Any) -> None:
    text = b'{"time": 3.5, "data": {"epoch": 1, "val": {"acc": "91.2%", "top 5": 1}}, "loss": "0.5"}\n'
    assert opened(kind="json").feed(text) == [(1, {"data/val/acc": 0.912, "data/val/top_5": 1.0, "loss": 0.5})]


def test_a_row_with_a_step_stands_within_its_epoch_unless_it_evaluates(opened: Any) -> None:
    reader = opened(kind="json")
    assert reader.feed(b'{"epoch": 0, "step": 1, "loss": 0.9}\n{"epoch": 0, "step": 2, "loss": 0.8}\n') == []
    assert reader.feed(b'{"epoch": 0, "step": 2, "val_acc": 0.5}\n') == [(1, {"loss": 0.8, "val_acc": 0.5})]


@pytest.mark.parametrize(
    "line",
    ["[" * 60_000, '{"epoch": ' + "[" * 20_000 + "}", '{"epoch": ' + "9" * 5000 + "}", '{"epoch": "x"}', '["epoch"]'],
)
def test_an_object_that_is_none_is_passed_over(line: str, opened: Any) -> None:
    assert opened(kind="json").feed(f'{line}\n{{"epoch": 1}}\n'.encode()) == [(1, {})]


def test_numbers_too_large_for_a_float_are_left_out(opened: Any) -> None:
    text = '{"epoch": 1, "a": 1' + "0" * 400 + ', "b": Infinity}\n'
    assert opened(kind="json").feed(text.encode()) == [(1, {"b": float("inf")})]


def test_objects_in_a_file_are_followed(opened: Any, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    append(path, '{"epoch": 1, "acc": 0.1}\n')
    reader = opened(kind="json", file="log.jsonl")
    assert reader.poll() == []
    append(path, '{"epoch": 2, "acc": 0.2}\n{"epoch": 3, ')
    assert reader.feed(b'{"epoch": 9, "acc": 0.9}\n') == []
    assert reader.poll() == [(2, {"acc": 0.2})]
    append(path, '"acc": 0.3}\n{"epoch": 4, "acc": 0.4}')
    assert reader.poll() == [(3, {"acc": 0.3})]
    assert reader.close() == [(4, {"acc": 0.4})]


def test_when_the_job_has_ended_nothing_is_left_unread(opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="json", file="log.jsonl")
    append(tmp_path / "log.jsonl", "x" * (3 * MOST_AT_ONCE) + '\n{"epoch": 1, "acc": 0.2}\n')
    assert reader.poll() == []
    assert reader.close() == [(1, {"acc": 0.2})]


def test_a_file_in_the_checkpoint_folder_is_found(opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="json", file="log.jsonl")
    append(tmp_path / "checkpoints" / "log.jsonl", '{"epoch": 1, "acc": 0.2}\n')
    assert reader.poll() == [(1, {"acc": 0.2})]


@given(
    st.lists(
        st.sampled_from(['{"epoch"', ": ", "1", "}", "{", "[", "]", '"', ",", "\n", "1e999", "NaN", "\\u0"])
        | st.text(max_size=3)
    )
)
def test_no_text_makes_it_fail(parts: list[str]) -> None:
    reader = JsonLines(EpochCounter(), "epoch", [])
    reader.feed("".join(parts).encode())
    reader.close(finished=True)


# -- CSV ----------------------------------------------------------------------------------------------------


def test_rows_are_epochs_and_columns_metrics(opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="csv", file="log.csv")
    append(tmp_path / "log.csv", 'Epoch, "val loss",acc,time\n0,0.5,90%,2026-01-01\n1,0.4,,x\n2,nan')
    assert reader.poll() == [(1, {"val_loss": 0.5, "acc": 0.9}), (2, {"val_loss": 0.4})]
    append(tmp_path / "log.csv", ",0.95,\n")
    ((epoch, metrics),) = reader.poll()
    assert (epoch, metrics["acc"], str(metrics["val_loss"])) == (3, 0.95, "nan")


def test_a_header_that_comes_again_is_a_header(opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="csv", file="log.csv")
    append(tmp_path / "log.csv", "epoch,loss\n1,0.5\nepoch,acc,loss\n2,0.9,0.4\n")
    assert reader.poll() == [(1, {"loss": 0.5}), (2, {"acc": 0.9, "loss": 0.4})]


def test_a_resumed_job_goes_on_in_a_file_whose_header_was_read_before(opened: Any, tmp_path: Path) -> None:
    append(tmp_path / "log.csv", "epoch;loss\n1;0.5\n2;0.4\n")
    reader = opened(kind="csv", file="log.csv")
    assert reader.poll() == []
    append(tmp_path / "log.csv", "3;0.3\n")
    assert reader.poll() == [(3, {"loss": 0.3})]


def test_a_job_that_starts_its_file_anew_is_read_from_its_beginning(opened: Any, tmp_path: Path) -> None:
    append(tmp_path / "log.csv", "epoch,loss\n1,0.5\n2,0.4\n")
    reader = opened(kind="csv", file="log.csv")
    (tmp_path / "log.csv").write_text("loss\tepoch\n0.3\t1\n")
    assert reader.poll() == [(1, {"loss": 0.3})]


def test_lightnings_rows_of_steps_wait_for_the_evaluation(opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="csv", file="metrics.csv")
    append(tmp_path / "metrics.csv", "epoch,step,train_loss,val_acc\n0,49,0.9,\n0,99,0.8,\n0,99,,0.5\n1,149,0.7,\n")
    assert reader.poll() == [(1, {"train_loss": 0.8, "val_acc": 0.5})]
    assert reader.close(finished=True) == [(2, {"train_loss": 0.7})]


@pytest.mark.parametrize(
    "text", ["loss,acc\n1,2\n", "1,2\n3,4\n", "\n\n", "epoch,loss\nx,y\n", 'epoch,loss\n"1,0.5\n\0\n', "\ufeffa\n"]
)
def test_what_has_no_counter_reports_nothing(text: str, opened: Any, tmp_path: Path) -> None:
    reader = opened(kind="csv", file="log.csv")
    append(tmp_path / "log.csv", text)
    assert reader.poll() == []


@given(
    st.lists(
        st.sampled_from(["epoch", ",", ";", "\n", '"', "1", "0.5", "loss", "\t", "\0", "\r"]) | st.text(max_size=3)
    )
)
def test_no_table_makes_it_fail(tmp_path_factory: Any, parts: list[str]) -> None:
    from hocket.agent.progress.csv_file import CsvFiles

    path = tmp_path_factory.mktemp("csv") / "log.csv"
    reader = CsvFiles(EpochCounter(), "epoch", [str(path)])
    path.write_bytes("".join(parts).encode("utf-8", "surrogatepass"))
    reader.poll()
    reader.close(finished=True)


# -- steps ----------------------------------------------------------------------------------------------------


def test_rows_without_an_epoch_are_of_their_step(opened: Any, tmp_path: Path) -> None:
    table = opened(kind="csv", file="log.csv")
    append(tmp_path / "log.csv", "step,loss\n10,0.5\n20,0.4\n")
    assert table.poll() == [StepReport(10, {"loss": 0.5}), StepReport(20, {"loss": 0.4})]
    objects = opened(kind="json")
    assert objects.feed(b'{"global_step": 10, "loss": 0.5}\n{"step": 20}\n') == [StepReport(10, {"loss": 0.5})]
    assert objects.feed(b'{"epoch": 1, "step": 30, "loss": 0.3}\n{"step": 40, "val_loss": 0.2}\n') == [
        (1, {"loss": 0.3, "val_loss": 0.2})
    ]
