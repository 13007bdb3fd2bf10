"""A start that is set aside: said by one process, seen by another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamproof import settings
from streamproof.evidence.folder import RunFolder
from streamproof.jobs.aside import set_aside, start_aside, take_back
from streamproof.jobs.engine import RUN_MARK, START_MARK
from streamproof.run.supervisor import kill_drivers
from streamproof.testbed.process import MARK


def test_it_is_set_aside_until_it_is_taken_back(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    assert start_aside(folder) is None
    set_aside(folder, 2)
    assert start_aside(folder) == 2
    take_back(folder)
    take_back(folder)
    assert start_aside(folder) is None


def test_who_ends_the_other_drivers_leaves_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    folder = RunFolder.create(tmp_path / "run")
    marks = {MARK: str(settings.home()), RUN_MARK: folder.name}
    old, new = (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**marks, START_MARK: start}) for start in "12"
    )
    try:
        assert kill_drivers(folder, but=1) == [new.pid]
        assert old.poll() is None
        assert kill_drivers(folder) == [old.pid]
    finally:
        for process in (old, new):
            process.kill()
            process.communicate()
