"""A test that leaves the shared testbed damaged is named, and whoever comes next has a testbed that is right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from tests.support import repair
from tests.support.checkout import ROOT

# They use the testbed that is up, and leave it damaged, each in its way.
DAMAGING = """
import os, signal
import pytest
from streamproof.testbed import embedded
from streamproof.testbed.process import remembered, wait_until
from tests.support import repair

@pytest.fixture(scope="session")
def testbed():
    return embedded.current()

def _send(role, number):
    os.kill(remembered(role, embedded.folder()).pid, number)

def test_kills(testbed):
    _send(os.environ["VICTIM"], signal.SIGKILL)

def test_needs_it(testbed):
    assert set(embedded.status().values()) == {"up"}

def test_pauses_a_worker(testbed):
    _send("spark-worker-1", signal.SIGSTOP)
    wait_until("it to be stopped", lambda: "spark-worker-1" in repair._paused(testbed), 10)

def test_cuts_a_link(testbed):
    testbed.proxies.disable("postgres")

def test_fails_and_leaves_a_toxic(testbed):
    testbed.proxies.add("kafka-driver", "slow", "latency", "downstream", {"latency": 1})
    raise AssertionError("for a reason of its own")

def test_needs_all(testbed):
    assert set(embedded.status().values()) == {"up"}
    assert not testbed.proxies.toxics("kafka-driver")
"""


@pytest.mark.parametrize("victim", ["toxiproxy", pytest.param("kafka", marks=pytest.mark.slow)])
def test_who_leaves_the_testbed_damaged_is_named_and_who_comes_next_has_it_right(testbed: Testbed, victim: str, tmp_path: Path) -> None:
    path = tmp_path / "test_damaging.py"
    path.write_text(DAMAGING)
    plain = ["-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-v"]
    command, environment = [sys.executable, "-m", "pytest", *plain, str(path)], {**os.environ, "VICTIM": victim}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    results = re.findall(r"^\S+::test_(\w+) (PASSED|FAILED|ERROR)", done.stdout, re.MULTILINE)
    assert results == [
        ("kills", "PASSED"),
        ("kills", "ERROR"),
        ("needs_it", "PASSED"),
        ("pauses_a_worker", "PASSED"),
        ("pauses_a_worker", "ERROR"),
        ("cuts_a_link", "PASSED"),
        ("cuts_a_link", "ERROR"),
        ("fails_and_leaves_a_toxic", "FAILED"),
        ("needs_all", "PASSED"),
    ], done.stdout + done.stderr
    left = dict(re.findall(r"::test_(\w+) left the testbed damaged: (.*)\. It was put right\.", done.stdout))
    assert left == {
        "kills": f"{victim} is down",
        "pauses_a_worker": "spark-worker-1 is paused",
        "cuts_a_link": "proxy postgres is disabled",
        "fails_and_leaves_a_toxic": "proxy kafka-driver has toxic slow (latency)",
    }
    assert embedded.current() == testbed
    assert repair.damage(repair.Before.look()) == []
