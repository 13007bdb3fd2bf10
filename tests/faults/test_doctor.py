"""The doctor with jobs that have something wrong with them, and one that has not: each gets its finding, and nothing of it stays."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from streamproof import settings
from streamproof.experiment.model import Experiment
from streamproof.run import first_signs, lock, runner
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.kafka import Cluster
from streamproof.verdict.verdict import Verdict
from tests.support.checkout import ROOT
from tests.support.processes import of_runs

WITHIN_S = 60


def _doctor(job: Path, **environment: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    command = [sys.executable, "-m", "streamproof.cli.main", "doctor", str(job), "--json", "--timeout", "30"]
    answer = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=WITHIN_S + 60, check=False
    )
    assert answer.stdout, answer.stderr
    document = json.loads(answer.stdout)
    assert document["well"] is (answer.returncode == 0)
    return answer.returncode, {finding["about"]: finding for finding in document["findings"]}, answer.stderr


def _job(folder: Path, *words: str, **more: Any) -> Path:
    """JSON is YAML."""
    path = folder / "job.yaml"
    command = ["{python}", str(ROOT / "tests" / "support" / "sloppy.py"), *words]
    path.write_text(json.dumps({"engine": "command", "command": command, "promises": "at-least-once", **more}))
    return path


@pytest.fixture(autouse=True)
def _nothing_stays(testbed: Testbed) -> Any:
    cluster = Cluster(testbed.direct_kafka)
    topics, runs = cluster.topics(), set(settings.runs().glob("*"))
    yield
    assert lock.holder() is None
    assert cluster.topics() == topics
    assert set(settings.runs().glob("*")) == runs
    assert of_runs() == []


def test_a_job_that_can_be_tested_gets_a_line_for_each_thing_that_is_needed(testbed: Testbed, tmp_path: Path) -> None:
    code, findings, _ = _doctor(_job(tmp_path))
    assert code == 0, findings
    assert list(findings) == ["starts", "connects", "reads", "delivers", "identity", "keeps"]
    assert "kafka-driver" in findings["connects"]["seen"]
    assert findings["reads"]["seen"].startswith("1000 of 1000 records")
    assert findings["delivers"]["seen"].startswith("1000 records in the topic")


@pytest.mark.slow
def test_a_job_that_delivers_to_a_table_is_looked_for_there(testbed: Testbed, tmp_path: Path) -> None:
    """As it is; and with another table named in `delivers` than the one that it writes to."""
    job = {
        "command": ["{python}", "tests/faults/own_orders.py", "upsert"],
        "env": {
            "BOOTSTRAP_SERVERS": "{bootstrap_servers}",
            "TOPIC": "{input_topic}",
            "GROUP": "{group}",
            "BATCH": "{batch_records}",
            "POSTGRES": "{postgres}",
        },
        "delivers": {"postgres": {"table": "orders", "identity": {"column": "order_id"}, "ddl": "tests/faults/own_orders.sql"}},
    }
    path = tmp_path / "experiment.yaml"

    def examined(described: dict[str, Any]) -> tuple[int, dict[str, dict[str, Any]]]:
        job = {"engine": "command", "promises": "exactly-once", **described}
        path.write_text(json.dumps({"job": job, "workload": {"source": "synthetic"}, "faults": [{"fault": "kill_driver"}]}))
        return _doctor(path)[:2]

    code, findings = examined(job)
    assert code == 0, findings
    assert findings["delivers"]["seen"] == "1000 records in the table orders"
    code, findings = examined({**job, "delivers": {"postgres": {"table": "parcels", "identity": {"column": "order_id"}}}})
    assert code == 1, findings
    assert "orders" in findings["starts"]["seen"], "nobody made the table that it writes to"


@pytest.mark.parametrize(
    ("mistake", "about", "seen", "mend"),
    [
        pytest.param("ends", "starts", "ended by itself with exit code 0", "SIGTERM", marks=pytest.mark.slow),
        pytest.param(
            "variable",
            "starts",
            "KeyError: 'ORDERS_TOPIC'",
            "it looks for a variable ORDERS_TOPIC: set it in `env`",
            marks=pytest.mark.slow,
        ),
        ("package", "starts", "a_package_that_is_not_there", "install a_package_that_is_not_there into the job's own environment"),
        ("forks", "starts", "went on", "stay in the foreground"),
        ("round the proxies", "connects", "and round them to kafka at", "take its addresses from {bootstrap_servers}"),
        pytest.param("never connects", "connects", "to no proxy", "{bootstrap_servers}", marks=pytest.mark.slow),
        pytest.param("own group", "reads", "0 of", "the group orders commits offsets of the input", marks=pytest.mark.slow),
        pytest.param("identity", "identity", "1000 of 1000 delivered records carry none", "`identity`", marks=pytest.mark.slow),
        ("delivers nothing", "delivers", "nothing in the topic", "`delivers`"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_do(testbed: Testbed, tmp_path: Path, mistake: str, about: str, seen: str, mend: str) -> None:
    env = {"DIRECT": testbed.direct_kafka}
    code, findings, _ = _doctor(_job(tmp_path, mistake, env=env))
    assert code == 1, findings
    assert not findings[about]["well"], findings
    assert seen in findings[about]["seen"]
    assert mend in findings[about]["mend"]
    assert all(finding["mend"] or finding["well"] or finding["about"] != about for finding in findings.values())


def test_a_file_that_is_no_job_is_refused_before_anything_is_started(testbed: Testbed, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("engine: command\ncommand: [run]\n")
    command = [sys.executable, "-m", "streamproof.cli.main", "doctor", str(path)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 2
    assert "promises: Field required" in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (
            "never connects",
            "the job never connected: .* reached no server of the testbed; expected Kafka at 127.0.0.1:.*{bootstrap_servers}",
        ),
        pytest.param("round the proxies", "the job goes round the proxies.* it reaches kafka at 127.0.0.1:", marks=pytest.mark.slow),
        pytest.param("own group", "no progress .*the group orders commits offsets of the input", marks=pytest.mark.slow),
        pytest.param("identity", "no record of its output carries an identity", marks=pytest.mark.slow),
        pytest.param(
            "delivers nothing",
            "committed .* records and delivered nothing: expected them in the topic .*; no other topic holds any",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_of_a_job_that_cannot_be_judged_ends_soon_with_the_reason(
    testbed: Testbed, mistake: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_signs, "IDLE_S", 15.0)
    monkeypatch.setattr(first_signs, "DELIVERED_S", 10.0)
    job = {"engine": "command", "command": ["{python}", "tests/support/sloppy.py", mistake], "env": {"DIRECT": testbed.direct_kafka}}
    workload = {"source": "synthetic", "records": 1000}
    experiment = Experiment(job={**job, "promises": "at-least-once"}, workload=workload, faults=[{"fault": "kill_driver"}], seed=1)
    begun = time.monotonic()
    folder = runner.run(experiment)
    seconds = time.monotonic() - begun
    verdict = Verdict.read(folder)
    shutil.rmtree(folder.path)
    assert verdict.outcome == "ERROR"
    assert re.search(says, verdict.reason), verdict.reason
    assert seconds < WITHIN_S + 30, "with a minute at most from the start of the job"
