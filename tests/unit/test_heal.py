"""A run is restored by one at a time, and nobody waits for another for ever."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Event, InjectionHealed, InjectionStarted, Restored, TestbedTaken
from streamproof.run import healing, lock
from streamproof.testbed.process import TestbedError


def test_who_waits_too_long_for_another_restorer_is_told_its_run_and_its_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "some-run")
    monkeypatch.setattr(healing, "RESTORE_S", 0.2)
    with (
        healing._alone(folder),
        pytest.raises(TestbedError, match=rf"run some-run has been restored by another process \(pid {os.getpid()}\)"),
        healing._alone(folder),
    ):
        pass
    with healing._alone(folder):
        pass


def test_a_lock_without_a_holder_is_taken(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / "restore.lock").write_text("12345")
    with healing._alone(folder), (folder.path / "restore.lock").open() as file:
        assert file.read() == str(os.getpid())
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _journal(tmp_path: Path, *events: Event) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run")
    for event in events:
        folder.journal.append(event)
    return folder


STARTED = InjectionStarted(injection="pause_kafka-1", fault="pause_kafka")
TAKEN = TestbedTaken()
HEALED = InjectionHealed(injection="pause_kafka-1", checks=())


def test_an_injection_is_open_from_its_start_to_its_heal_and_again_when_it_is_repeated(tmp_path: Path) -> None:
    assert healing._open_injections(_journal(tmp_path / "1")) == []
    assert [event.fault for event in healing._open_injections(_journal(tmp_path / "2", STARTED))] == ["pause_kafka"]
    assert healing._open_injections(_journal(tmp_path / "3", STARTED, HEALED)) == []
    assert len(healing._open_injections(_journal(tmp_path / "4", STARTED, HEALED, STARTED))) == 1


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ((), False),
        ((TAKEN,), True),
        ((TAKEN, Restored()), False),
        ((TAKEN, Restored(), TAKEN), True),
    ],
)
def test_a_run_is_left_behind_that_took_the_testbed_and_did_not_give_it_back(tmp_path: Path, events: tuple[Event, ...], left: bool) -> None:
    assert healing.left_behind(_journal(tmp_path, *events)) == left


def test_who_comes_second_leaves_the_testbed_to_the_run_that_has_it_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path / "home"))
    folder = _journal(tmp_path, TAKEN, Restored())
    lock.acquire("the-next-run", tmp_path, os.getpid())
    before = folder.journal.events()
    healing.give_back(folder)  # there is no testbed: whoever touched one would fail
    assert folder.journal.events() == before
    found = lock.holder()
    assert found is not None
    assert found.run == "the-next-run"
