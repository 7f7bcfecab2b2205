"""Working directories as one file: the same files, the same name; nothing is written outside."""

import io
import os
import tarfile

import pytest

from hocket.agent.bundle import BundleError, digest_of, pack, unpack


def test_the_same_files_make_the_same_bundle_whatever_their_times(tmp_path):
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "sub" / "a.py").write_text("1")
    (here / "run.sh").write_text("#!/bin/sh\n")
    (here / "run.sh").chmod(0o755)
    (here / "data").symlink_to("/shared/data")
    (here / "__pycache__").mkdir()
    (here / "env").mkdir()
    (here / "env" / "pyvenv.cfg").write_text("")
    (here / "env" / "large").write_text("x")
    first = pack(str(here), str(tmp_path / "first"))
    os.utime(here / "sub" / "a.py", (0, 0))
    assert pack(str(here), str(tmp_path / "second")) == first == digest_of(str(tmp_path / "second"))
    unpack(str(tmp_path / "first"), str(tmp_path / "there"))
    found = sorted(str(path.relative_to(tmp_path / "there")) for path in (tmp_path / "there").rglob("*"))
    assert found == ["data", "env", "run.sh", "sub", "sub/a.py"]
    assert os.access(tmp_path / "there" / "run.sh", os.X_OK)
    assert os.readlink(tmp_path / "there" / "data") == "/shared/data"
    (here / "sub" / "a.py").write_text("2")
    assert pack(str(here), str(tmp_path / "third")) != first


@pytest.mark.parametrize("name", ["../outside", "/outside", "sub/../../outside"])
def test_a_bundle_that_would_write_outside_is_refused(tmp_path, name):
    with tarfile.open(tmp_path / "bad", "w:gz") as tar:
        member = tarfile.TarInfo(name)
        member.size = 1
        tar.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(BundleError, match="outside"):
        unpack(str(tmp_path / "bad"), str(tmp_path / "in" / "there"))
    assert not (tmp_path / "outside").exists()


def test_what_is_no_bundle_is_refused(tmp_path):
    (tmp_path / "text").write_text("no bundle")
    with pytest.raises(BundleError, match="it is no bundle"):
        unpack(str(tmp_path / "text"), str(tmp_path / "there"))
