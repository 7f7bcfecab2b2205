"""The name of what a launcher makes tells which process that was, and nothing else is taken for one."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.testing.hosts.owner_tag import OwnerTag, own_tag, read_tag


@given(st.integers(1, 4_194_304), st.integers(0, 36**6 - 1))
def test_a_launcher_is_read_from_the_names_of_what_it_made(pid, began):
    tag = OwnerTag(pid, began)
    assert len(f"{tag}ff") <= 15, "the name of a link"
    assert read_tag(tag.name) == read_tag(f"{tag.name}-n12") == read_tag(f"hocket-{tag}") == tag


@pytest.mark.parametrize(
    "name",
    [
        "hypothesis12",
        "hocket-0123456789ab",
        "hocket-hosts-0.lock",
        "hocket-hosts-h0000000000",
        "eth0",
        "h00ggj02xic1br",
    ],
)
def test_other_names_are_left_alone(name):
    assert read_tag(name) is None


def test_a_process_that_has_ended_and_one_with_the_same_number_are_told_apart():
    assert own_tag().lives
    assert not own_tag()._replace(began=own_tag().began + 1).lives
    with subprocess.Popen(["sleep", "600"]) as child:
        began = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        tag = OwnerTag(child.pid, began % 36**6)
        assert tag.lives
        child.kill()
    assert not tag.lives
    assert own_tag().pid == os.getpid()
