"""A run is restored by one at a time, and nobody waits for another for ever."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from chaos import heal
from delivery.folder import RunFolder
from testbed.process import TestbedError


def test_who_waits_too_long_for_another_restorer_is_told_its_run_and_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "some-run")
    monkeypatch.setattr(heal, "RESTORE_S", 0.2)
    with (
        heal._alone(folder),
        pytest.raises(TestbedError, match=rf"run some-run has been restored by another process \(pid {os.getpid()}\)"),
        heal._alone(folder),
    ):
        pass
    with heal._alone(folder):
        pass


def test_a_lock_without_a_holder_is_taken(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "restore.lock").write_text("12345")
    with heal._alone(folder), (folder.path / "restore.lock").open() as file:
        assert file.read() == str(os.getpid())
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
