"""A decision appears whole, once and for ever, or not at all, whoever dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streamproof.engines.spark.decisions import DecisionLog
from streamproof.kafka.transactions import Prepared
from tests.support.checkout import ROOT

ONE, TWO = Prepared("q.1.a", 7, 0), Prepared("q.1.b", 8, 3)

# Ends the process at a call of ``os``, before the call is done.
DIES_AT = """
import os, signal, sys
from pathlib import Path
from streamproof.engines.spark.decisions import DecisionLog
from streamproof.kafka.transactions import Prepared
setattr(os, sys.argv[2], lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL))
log = DecisionLog(Path(sys.argv[1]))
log.decide(3, [Prepared("q.1.a", 7, 0)])
log.finish(3)
"""

# Decides as soon as the file ``go`` is there; says whether it won.
RACES = """
import sys
from pathlib import Path
from streamproof.engines.spark.decisions import DecisionLog
from streamproof.kafka.transactions import Prepared
folder, number = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
while not (folder / "go").exists():
    pass
try:
    DecisionLog(folder).decide(3, [Prepared("q.1.a", number, 0)])
    print("won")
except FileExistsError:
    print("lost")
"""


@pytest.fixture
def log(tmp_path: Path) -> DecisionLog:
    return DecisionLog(tmp_path / "decisions")


def _dies_at(log: DecisionLog, call: str) -> None:
    done = subprocess.run([sys.executable, "-c", DIES_AT, str(log.folder), call], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL


def test_nothing_is_decided_in_a_folder_that_is_not_there(log: DecisionLog) -> None:
    assert log.read(3) is None
    assert log.unfinished() == {}
    assert not log.folder.exists()


def test_a_decision_is_read_back_as_it_was_made_in_its_order(log: DecisionLog) -> None:
    log.decide(3, [TWO, ONE])
    assert log.read(3) == [TWO, ONE]
    assert log.read(4) is None
    assert log.unfinished() == {3: [TWO, ONE]}


def test_a_decision_for_nothing_is_a_decision(log: DecisionLog) -> None:
    log.decide(3, [])
    assert log.read(3) == []


def test_a_finished_decision_is_remembered_and_no_longer_unfinished(log: DecisionLog) -> None:
    log.decide(3, [ONE])
    log.decide(4, [TWO])
    log.finish(3)
    assert log.read(3) == [ONE]
    assert log.unfinished() == {4: [TWO]}


def test_finishing_twice_or_what_was_never_decided_does_nothing(log: DecisionLog) -> None:
    log.decide(3, [ONE])
    for _ in range(2):
        log.finish(3)
    log.finish(9)
    assert (log.read(3), log.read(9)) == ([ONE], None)


@pytest.mark.parametrize("finished", [False, True])
def test_deciding_a_batch_twice_is_refused_and_changes_nothing(log: DecisionLog, finished: bool) -> None:
    log.decide(3, [ONE])
    if finished:
        log.finish(3)
    with pytest.raises(FileExistsError):
        log.decide(3, [TWO])
    assert log.read(3) == [ONE]
    assert len(list(log.folder.iterdir())) == 1, "a refused decision leaves no file"


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_crash_before_the_decision_is_in_place_decides_nothing(log: DecisionLog, call: str) -> None:
    _dies_at(log, call)
    assert log.read(3) is None
    assert log.unfinished() == {}
    log.decide(3, [TWO])
    assert log.read(3) == [TWO]


def test_a_crash_between_the_decision_and_its_finish_leaves_it_unfinished(log: DecisionLog) -> None:
    _dies_at(log, "rename")
    assert log.unfinished() == {3: [ONE]}
    log.finish(3)
    assert log.unfinished() == {}


def test_a_crash_after_the_link_leaves_a_decision(log: DecisionLog) -> None:
    _dies_at(log, "unlink")
    assert log.unfinished() == {3: [ONE]}


def test_of_processes_that_decide_at_once_one_wins(log: DecisionLog) -> None:
    log.folder.mkdir(parents=True)
    racers = [
        subprocess.Popen([sys.executable, "-c", RACES, str(log.folder), str(number)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for number in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    (log.folder / "go").touch()
    said = [racer.communicate(timeout=60)[0].strip() for racer in racers]
    assert sorted(said) == ["lost", "lost", "won"]
    assert log.read(3) == [Prepared("q.1.a", said.index("won"), 0)]
    assert sorted(path.name for path in log.folder.iterdir()) == ["3.decided", "go"]


def test_decisions_are_told_by_number_not_by_name(log: DecisionLog) -> None:
    for batch in (9, 10, 100):
        log.decide(batch, [ONE])
    assert set(log.unfinished()) == {9, 10, 100}


def test_the_log_is_a_readable_file(log: DecisionLog) -> None:
    log.decide(3, [ONE])
    assert json.loads((log.folder / "3.decided").read_text()) == [{"transactional_id": "q.1.a", "producer_id": 7, "epoch": 0}]
    assert os.stat(log.folder / "3.decided").st_nlink == 1
