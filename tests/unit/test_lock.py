"""One experiment at a time on one testbed: whoever is refused is told by whom it is held, and what to do."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from streamproof.run import lock


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("pid", "who"), [(os.getpid(), f"process {os.getpid()}"), (None, "Airflow's tasks")], ids=["process", "airflow"])
def test_the_refusal_names_the_run_its_folder_and_who_holds_it(home: Path, pid: int | None, who: str) -> None:
    lock.acquire("one", home / "runs" / "one", pid)
    with pytest.raises(lock.TestbedBusy) as refused:
        lock.acquire("two", home / "runs" / "two", os.getpid())
    assert str(refused.value) == (
        f"the testbed is held by run one ({home}/runs/one; {who}), and one experiment runs on it at a time. "
        "Wait for it, or end it; `streamproof heal` cleans up after a killed one."
    )
    found = lock.holder()
    assert found is not None
    assert found.run == "one"


def test_the_same_run_may_take_it_again_and_another_once_it_is_given_back(home: Path) -> None:
    for _ in range(2):
        lock.acquire("one", home, os.getpid())
    lock.release("another")
    with pytest.raises(lock.TestbedBusy):
        lock.acquire("two", home, os.getpid())
    lock.release("one")
    lock.acquire("two", home, os.getpid())


def test_a_lock_that_cannot_be_read_is_held_by_somebody(home: Path) -> None:
    lock.acquire("one", home, os.getpid())
    lock.path().write_text("{")
    with pytest.raises(lock.TestbedBusy, match="held by run unknown"):
        lock.acquire("two", home, os.getpid())


def test_who_waits_is_told_for_whom_once_and_goes_on_when_it_is_given_back(home: Path) -> None:
    lock.acquire("one", home, os.getpid())
    said: list[str] = []
    threading.Timer(1.2, lock.release, ["one"]).start()
    begun = time.monotonic()
    lock.wait("two", 30, said.append)
    assert time.monotonic() - begun > 1
    assert said == ["the testbed is held by run one: waiting for it, 30 s at most"]


def test_who_has_waited_too_long_is_told_by_whom_it_is_held(home: Path) -> None:
    lock.acquire("one", home, os.getpid())
    with pytest.raises(lock.TestbedBusy, match=r"was held by run one .* for 0 s"):
        lock.wait("two", 0.1, lambda line: None)


def test_nobody_waits_for_itself_nor_for_a_holder_that_is_gone(home: Path) -> None:
    lock.acquire("one", home, os.getpid())
    lock.wait("one", 0.1, lambda line: None)
    gone = subprocess.Popen(["sleep", "60"])
    lock.release("one")
    lock.acquire("dead", home, gone.pid)
    gone.kill()
    gone.wait()
    lock.wait("two", 0.1, lambda line: None)


def test_those_that_wait_take_turns_and_one_that_waits_too_long_is_told_by_whom(home: Path) -> None:
    said: list[str] = []
    kept = threading.Event()

    def keep() -> None:
        with lock.turn("one", 30, said.append):
            kept.set()
            time.sleep(1.2)

    keeper = threading.Thread(target=keep)
    keeper.start()
    assert kept.wait(10)
    with pytest.raises(lock.TestbedBusy, match=rf"process {os.getpid()} has used the testbed, or waited for it, for 0 s"):
        lock.turn("two", 0.2, said.append).__enter__()
    begun = time.monotonic()
    with lock.turn("three", 30, said.append):
        assert time.monotonic() - begun > 0.5
    keeper.join()


def test_a_turn_also_waits_for_a_run_that_took_none(home: Path) -> None:
    lock.acquire("one", home, os.getpid())
    with pytest.raises(lock.TestbedBusy, match="held by run one"):
        lock.turn("two", 0.5, lambda line: None).__enter__()
    lock.release("one")
    with lock.turn("two", 0.5, lambda line: None):
        pass
