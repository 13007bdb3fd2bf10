"""One experiment at a time on one testbed: whoever is refused is told by whom it is held, and what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos import lock


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STREAMPROOF_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("pid", "who"), [(os.getpid(), f"process {os.getpid()}"), (None, "Airflow's tasks")])
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
