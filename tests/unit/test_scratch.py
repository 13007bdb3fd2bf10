"""The temporary folders of runs and testbeds."""

import stat
import subprocess
from pathlib import Path

import pytest

from streamproof.errors import BadInput
from streamproof.testbed import install, java, scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_run_has_one_that_only_its_owner_enters_and_it_ends_with_the_run(tmp_path):
    run = tmp_path / "runs" / "a"
    folder = scratch.variables(run, {})["TMPDIR"]
    assert scratch.variables(run, {})["TMPDIR"] == folder  # its next start
    assert scratch.variables(tmp_path / "runs" / "b", {})["TMPDIR"] != folder
    path = Path(folder)
    assert not path.exists()
    scratch.make(run)
    scratch.make(run)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (path / "left").write_text("by a program that was killed")
    scratch.remove(run)
    scratch.remove(run)
    assert not path.exists()


def test_its_path_is_short_however_deep_the_run_or_the_testbed_lies(tmp_path):
    """Spark's Python workers listen on a Unix socket in it, whose address has 107 bytes at most."""
    deep = tmp_path.joinpath(*["a-folder-of-some-length"] * 8)
    assert len(scratch.variables(deep, {})["TMPDIR"]) - len(str(tmp_path)) == len("/streamproof-") + 12


def test_a_link_in_its_place_is_refused(tmp_path):
    run = tmp_path / "runs" / "a"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    scratch.folder(run).symlink_to(elsewhere)
    with pytest.raises(BadInput, match="somebody else has put there"):
        scratch.make(run)


def test_a_jvm_uses_it_and_keeps_the_options_that_it_had(tmp_path):
    environment = java.temporary(tmp_path, {java.OPTIONS: "-Dmine=1"})
    shown = subprocess.run(
        [install.java_executable(), "-XshowSettings:properties", "-version"], env=environment, capture_output=True, text=True, check=True
    )
    assert f"java.io.tmpdir = {tmp_path}" in shown.stderr
    assert "mine = 1" in shown.stderr
