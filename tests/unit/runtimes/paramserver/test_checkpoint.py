"""Checkpoints are read by several threads: this host's, and those that answer other hosts."""

import ast
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hocket.runtimes.paramserver import checkpoint
from hocket.runtimes.paramserver.checkpoint import CheckpointFolder, SavedProgress, packed_states, unpacked_states
from hocket.runtimes.paramserver.pull_plan import ArrayLayout


def test_states_are_whole_though_another_thread_reads_them_for_the_first_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = CheckpointFolder(tmp_path)
    layout = {"a": ArrayLayout.of(np.zeros(2))}
    blocks = {3: {"x": np.arange(4)}}
    progress = SavedProgress("A", 1, 4, 4, 0)
    part = saved.begin(progress, layout)
    part.write(0, [("a", 0, np.zeros(2))], [packed_states(blocks)])
    part.finish(progress)
    found = saved.newest()
    assert found is not None
    reading, go_on, plain = threading.Event(), threading.Event(), checkpoint._opened

    def slowly(content: Any, what: str) -> object:
        reading.set()
        assert go_on.wait(60)
        return plain(content, what)

    monkeypatch.setattr(checkpoint, "_opened", slowly)
    states: list[bytes] = []
    threads = [threading.Thread(target=lambda: states.append(found.states_of([3]))) for _ in range(2)]
    threads[0].start()
    assert reading.wait(60)
    threads[1].start()
    threads[1].join(0.2)  # as long as it takes if it does not wait for the first
    go_on.set()
    for thread in threads:
        thread.join()
    for content in states:
        assert unpacked_states(content)[3]["x"].tolist() == [0, 1, 2, 3]


def test_what_was_left_of_a_checkpoint_is_removed_before_room_is_needed_for_another(tmp_path: Path) -> None:
    here, layout = CheckpointFolder(tmp_path), {"a": ArrayLayout.of(np.zeros(4))}
    finished = SavedProgress("A", 2, 4, 4, 0)
    here.begin(finished, layout).finish(finished)
    here.begin(SavedProgress("A", 5, 4, 4, 0), layout)  # Its process is killed.
    here.begin(SavedProgress("A", 4, 4, 4, 0), layout)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-000000002", "iteration-000000004.part"]


def test_no_two_threads_have_python_parse_what_stands_before_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 may fail then; other hosts are answered by threads of their own."""
    saved, names = CheckpointFolder(tmp_path), ("a", "b")
    progress = SavedProgress("A", 1, 4, 4, 0)
    part = saved.begin(progress, {name: ArrayLayout.of(np.zeros(2)) for name in names})
    part.write(0, [(name, 0, np.zeros(2)) for name in names], [packed_states({3: {"x": np.arange(4)}})])
    part.finish(progress)
    found = saved.newest()
    assert found is not None
    plain, within, at_once = ast.literal_eval, threading.Semaphore(1), list[bool]()

    def slowly(text: str) -> object:
        at_once.append(not within.acquire(blocking=False))
        time.sleep(0.05)
        within.release()
        return plain(text)

    monkeypatch.setattr(ast, "literal_eval", slowly)
    reads = [lambda name=name: found.rows(name, 0, 2) for name in names] + 2 * [lambda: found.states_of([3])]
    threads = [threading.Thread(target=read) for read in reads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(at_once) >= 4
    assert not any(at_once)


def test_a_checkpoint_that_is_begun_is_known_by_its_id_and_counts_when_it_is_finished(tmp_path: Path) -> None:
    here, layout = CheckpointFolder(tmp_path), {"a": ArrayLayout.of(np.zeros((4, 2)))}
    progress = SavedProgress("A", 7, 4, 4, 0, id="this")
    part = here.begin(progress, layout)
    other = CheckpointFolder(tmp_path).begun(7, "this", layout)
    assert other is not None
    assert here.begun(7, "another", layout) is None
    assert CheckpointFolder(tmp_path / "elsewhere").begun(7, "this", layout) is None
    other.write(1, [("a", 2, np.full((2, 2), 2.0))], [packed_states({})])
    part.write(0, [("a", 0, np.full((2, 2), 1.0))], [packed_states({})])
    assert here.newest() is None
    part.finish(progress)
    found = here.newest_with_id("this")
    assert found is not None
    assert found.rows("a", 1, 3).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert here.newest_with_id("another") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration-000000007"]
