"""Event files: those of real writers in `data/`, and those of a writer that can be made to write nonsense."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.agent.progress.event_file import LONGEST_PAYLOAD, crc32c, scalars

DATA = Path(__file__).with_name("data")


@pytest.fixture
def reader(opened: Any) -> Any:
    return opened(kind="tensorboard", folder="runs")


@pytest.fixture
def writer(event_writer: Any, tmp_path: Path, reader: Any) -> Any:  # noqa: ARG001
    """Writes a file that is new to the reader."""
    return event_writer(tmp_path / "runs" / "events.out.tfevents.1")


def settled(reader: Any) -> list[Any]:
    """Two polls: what no other step has followed is reported when nothing more came."""
    return [*reader.poll(), *reader.poll()]


def test_the_checksum_is_castagnolis() -> None:
    """The example of RFC 3720, B.4, and the usual one."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"123456789") == 0xE3069283


# -- real writers -------------------------------------------------------------------------------------------


def test_files_of_tensorboardx_are_read(reader: Any, tmp_path: Path) -> None:
    """Scalars by step, with a histogram and a text among them (tensorboardX 2.6.5)."""
    shutil.copytree(DATA / "tensorboardx", tmp_path / "runs" / "Jan01_12-00-00_host")
    assert dict(settled(reader)) == {
        1: {"train/loss": 1.0, "val/acc": 0.5},
        2: {"train/loss": 0.5, "val/acc": 0.6},
        3: {"train/loss": 0.33333334, "val/acc": 0.7},
    }


def test_files_of_tensorboard_are_read(reader: Any, tmp_path: Path) -> None:
    """Scalars as tensors, as TensorFlow and Keras write them (tensorboard 2.21.0)."""
    shutil.copytree(DATA / "tensorboard", tmp_path / "runs" / "validation")
    assert dict(settled(reader)) == {
        epoch: {
            "validation/epoch_loss": pytest.approx(1 / epoch),
            "validation/epoch_accuracy": pytest.approx(epoch / 4),
        }
        for epoch in (1, 2, 3)
    }


def test_files_of_torch_are_read(reader: Any, tmp_path: Path) -> None:
    """Steps with an `epoch` tag, and `add_scalars` with its folders (torch 2.13.0)."""
    shutil.copytree(DATA / "torch", tmp_path / "runs")
    found = dict(settled(reader) + reader.close(finished=True))
    assert found[1] == {"train_loss": 0.33333334, "val_acc": 0.52}
    assert found[2] == {"train_loss": 0.16666667, "val_acc": 0.55, "loss_train": 0.5, "loss_val": 0.25}


# -- growing, several, cut ----------------------------------------------------------------------------------


def test_a_growing_file_is_read_frame_by_frame(reader: Any, writer: Any) -> None:
    frames = b"".join(writer.event(epoch, writer.simple("acc", epoch / 8)) for epoch in range(1, 5))
    reports = []
    for byte in frames:
        writer.append(bytes([byte]))
        reports += reader.poll()
    reports += reader.poll()
    assert reports == [(epoch, {"acc": epoch / 8}) for epoch in range(1, 5)]


def test_scalars_of_one_step_are_one_report(reader: Any, writer: Any) -> None:
    writer.scalar("loss", 0.5, 1)
    assert reader.poll() == []
    writer.scalar("acc", 0.25, 1)
    assert reader.poll() == []
    assert reader.poll() == [(1, {"loss": 0.5, "acc": 0.25})]
    writer.scalar("late", 1, 1)
    assert settled(reader) == [(1, {"loss": 0.5, "acc": 0.25, "late": 1.0})]


def test_an_epoch_tag_counts_instead_of_the_step(reader: Any, writer: Any) -> None:
    for step, epoch in ((100, 0), (200, 0), (300, 1)):
        writer.scalar("train/loss", 1 / step, step)
        writer.scalar("train/epoch", epoch, step)
    assert [epoch for epoch, _metrics in settled(reader)] == [1]
    writer.scalar("val/acc", 0.5, 400)
    writer.scalar("epoch", 1, 400)
    assert [(epoch, metrics["val/acc"]) for epoch, metrics in settled(reader)] == [(2, 0.5)]


def test_what_an_earlier_run_wrote_is_passed_over(opened: Any, event_writer: Any, tmp_path: Path) -> None:
    old = event_writer(tmp_path / "runs" / "a" / "events.out.tfevents.1")
    old.scalar("acc", 0.5, 7)
    half = old.event(8, old.simple("acc", 0.25))
    old.append(half[:10])
    reader = opened(kind="tensorboard", folder="runs")
    assert settled(reader) == []
    event_writer(tmp_path / "runs" / "b" / "events.out.tfevents.2").scalar("acc", 0.75, 1)
    assert settled(reader) == [(1, {"acc": 0.75})]
    old.append(half[10:])
    assert settled(reader) == [(8, {"acc": 0.25})]


def test_a_file_cut_in_the_middle_does_not_keep_others_from_being_read(
    reader: Any, writer: Any, event_writer: Any, tmp_path: Path
) -> None:
    writer.scalar("acc", 0.5, 1)
    writer.append(writer.event(2, writer.simple("acc", 0.25))[:-3])
    assert settled(reader) == [(1, {"acc": 0.5})]
    event_writer(tmp_path / "runs" / "events.out.tfevents.2").scalar("acc", 0.75, 2)
    assert settled(reader) == [(2, {"acc": 0.75})]


def test_train_and_validation_files_are_merged_by_their_clocks(reader: Any, event_writer: Any, tmp_path: Path) -> None:
    train = event_writer(tmp_path / "runs" / "train" / "events.out.tfevents.1")
    test = event_writer(tmp_path / "runs" / "validation" / "events.out.tfevents.1")
    for epoch in (0, 1):
        train.scalar("epoch_loss", epoch + 1, epoch)
        test.scalar("epoch_loss", epoch + 2, epoch)
    found = settled(reader)
    assert [epoch for epoch, _metrics in found] == [1, 1, 2, 2]
    assert dict(found) == {
        1: {"train/epoch_loss": 1.0, "validation/epoch_loss": 2.0},
        2: {"train/epoch_loss": 2.0, "validation/epoch_loss": 3.0},
    }


def test_a_damaged_payload_is_passed_over(reader: Any, writer: Any) -> None:
    damaged = bytearray(writer.event(1, writer.simple("acc", 0.5)))
    damaged[-6] ^= 1
    writer.append(bytes(damaged))
    writer.scalar("acc", 0.25, 2)
    assert settled(reader) == [(2, {"acc": 0.25})]


def test_behind_a_damaged_length_nothing_is_read(reader: Any, writer: Any) -> None:
    writer.scalar("acc", 0.5, 1)
    writer.append(bytes(64))
    writer.scalar("acc", 0.25, 2)
    assert settled(reader) == [(1, {"acc": 0.5})]


def test_long_payloads_are_passed_over(reader: Any, writer: Any) -> None:
    writer.append(writer.frame(bytes(LONGEST_PAYLOAD + 1)))
    writer.scalar("acc", 0.5, 1)
    assert settled(reader) == [(1, {"acc": 0.5})]


def test_lightnings_placeholder_is_no_metric(reader: Any, writer: Any) -> None:
    writer.scalar("hp_metric", -1, 0)
    writer.scalar("acc", 0.5, 1)
    assert settled(reader) == [(1, {"acc": 0.5})]


def test_a_folder_in_the_checkpoint_folder_is_found(reader: Any, event_writer: Any, tmp_path: Path) -> None:
    event_writer(tmp_path / "checkpoints" / "runs" / "events.out.tfevents.1").scalar("acc", 0.5, 1)
    assert settled(reader) == [(1, {"acc": 0.5})]


def test_the_last_step_is_reported_when_the_job_ends(reader: Any, writer: Any) -> None:
    writer.scalar("acc", 0.5, 1)
    assert reader.close() == [(1, {"acc": 0.5})]


# -- messages -----------------------------------------------------------------------------------------------

# TensorProto: type, and the fields that hold one number: `content` (4) or one by its type, packed or not.
TENSORS: dict[str, tuple[int, bytes, float]] = {
    "float content": (1, b"\x22\x04" + struct.pack("<f", 0.5), 0.5),
    "float": (1, b"\x2a\x04" + struct.pack("<f", 0.5), 0.5),
    "float, not packed": (1, b"\x2d" + struct.pack("<f", 0.5), 0.5),
    "double content": (2, b"\x22\x08" + struct.pack("<d", 0.1), 0.1),
    "double": (2, b"\x32\x08" + struct.pack("<d", 0.1), 0.1),
    "int32": (3, b"\x3a\x01\x07", 7.0),
    "negative int32": (3, b"\x3a\x0a" + b"\xff" * 9 + b"\x01", -1.0),
    "int64, not packed": (9, b"\x50\x07", 7.0),
    "int64 content": (9, b"\x22\x08" + struct.pack("<q", -3), -3.0),
    "bool": (10, b"\x5a\x01\x01", 1.0),
    "half": (19, b"\x6a\x02\x80\x70", 0.5),
    "half content": (19, b"\x22\x02" + struct.pack("<e", 0.5), 0.5),
    "bfloat16 content": (14, b"\x22\x02\x00\x3f", 0.5),
    "uint64": (23, b"\x8a\x01\x0a" + b"\xff" * 9 + b"\x01", float(2**64 - 1)),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_without_dimensions_is_a_scalar(kind: str, reader: Any, writer: Any) -> None:
    dtype, fields, value = TENSORS[kind]
    writer.append(writer.event(1, writer.tensor("acc", dtype, fields)))
    assert settled(reader) == [(1, {"acc": value})]


@pytest.mark.parametrize(
    ("dtype", "fields", "dimensions"),
    [
        (1, b"\x22\x08" + bytes(8), b"\x12\x02\x08\x02"),  # two floats
        (1, b"\x2a\x04" + bytes(4), b"\x12\x02\x08\x01"),  # a vector of one
        (7, b"\x42\x02hi", b""),  # a text
        (1, b"", b""),  # nothing
        (1, b"\x22\x03abc", b""),  # not a float's length
    ],
)
def test_other_tensors_are_no_scalars(dtype: int, fields: bytes, dimensions: bytes, reader: Any, writer: Any) -> None:
    writer.append(writer.event(1, writer.tensor("acc", dtype, fields, dimensions), writer.simple("loss", 0.5)))
    assert settled(reader) == [(1, {"loss": 0.5})]


def test_values_that_are_not_finite_pass(reader: Any, writer: Any) -> None:
    writer.append(writer.event(1, writer.simple("a", float("nan")), writer.simple("b", float("-inf"))))
    assert repr(settled(reader)) == "[(1, {'a': nan, 'b': -inf})]"


def significant(value: float) -> int:
    """How many digits it takes to write down, without zeros that only say how large it is."""
    return len(repr(value).partition("e")[0].replace(".", "").strip("-0"))


@given(st.floats(width=32, allow_nan=False))
def test_single_precision_comes_out_as_its_shortest_decimal(value: float) -> None:
    event = b"\x2a\x0c\x0a\x0a\x0a\x03acc\x15" + struct.pack("<f", value)
    found = scalars(event)
    assert found is not None
    assert struct.pack("<f", found.values["acc"]) == struct.pack("<f", value)
    assert significant(found.values["acc"]) <= significant(value)


@given(st.binary(max_size=200))
def test_no_payload_makes_it_fail(payload: bytes) -> None:
    scalars(payload)
    scalars(b"\x2a" + bytes([len(payload) & 0x7F]) + payload)


@given(st.data())
def test_no_damage_to_a_real_file_makes_it_fail(tmp_path_factory: Any, data: st.DataObject) -> None:
    from hocket.agent.progress.event_file import EventFile

    (source,) = (DATA / "tensorboard").iterdir()
    damaged = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(0, 5))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / "events"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    EventFile(str(path)).read()
