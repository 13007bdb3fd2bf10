"""The plugin for pytest, in a pytest of its own: real runs of a job that keeps its guarantee, and of one that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from streamproof.run import lock
from streamproof.testbed import embedded
from streamproof.testbed.embedded import Testbed
from tests.support.checkout import ROOT

TESTS = """
import pytest

RECORDS = {"source": "synthetic", "records": 6000}


def test_forward_survives_a_dead_driver(streamproof):
    run = streamproof.run("chaos/forward-exactly-once.yaml", faults=["kill_driver"], workload=RECORDS)
    run.assert_passed()
    with pytest.raises(AssertionError, match="INCONCLUSIVE: exactly-once was kept, but this run does not prove it: killed in"):
        run.assert_exactly_once()


@pytest.mark.streamproof(seed=4)
def test_without_transactions_it_does_not(streamproof):
    run = streamproof.run("chaos/forward-doubles.yaml", faults=[{"fault": "kill_driver", "at": 0.2, "parameters": {"delay_s": 0.5}}])
    assert run.verdict.seed == 4
    run.assert_exactly_once()
"""


@pytest.fixture(scope="module")
def session(testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What such a session printed, and its JUnit XML. Its tests lie elsewhere; its experiments are the project's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "test_forward.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder), "--junit-xml"]
    done = subprocess.run([*command, str(folder / "junit.xml")], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    return done, folder / "junit.xml"


def test_a_guarantee_that_is_broken_fails_the_test_with_blame_and_report(session: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = session
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "AssertionError: FAILED: forward broke exactly-once: " in done.stdout, done.stdout
    assert "  DUPLICATED: record 0/" in done.stdout, done.stdout
    assert "  report: /" in done.stdout, done.stdout


def test_each_test_names_its_runs_in_the_xml(session: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    cases = {case.attrib["name"]: case for case in ET.parse(session[1]).getroot().iter("testcase")}
    told = {name: {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")} for name, case in cases.items()}
    assert told["test_forward_survives_a_dead_driver"]["streamproof_outcome"] == "PASSED"
    assert told["test_without_transactions_it_does_not"]["streamproof_seed"] == "4"
    assert all(Path(properties["streamproof_run"]).is_dir() for properties in told.values())


def test_it_leaves_a_testbed_as_it_was_that_it_did_not_start(session: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    assert set(embedded.status().values()) == {"up"}
    assert lock.holder() is None
